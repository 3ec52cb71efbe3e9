"""Which kinds of backend exist, and how an adapter for a pool is made.

Rows hold import paths, so nothing of a provider loads before the first pool of its kind is built.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import import_module
from typing import Final

from pydantic import BaseModel, JsonValue, ValidationError

from differently_core.contract import (
    WHOLE,
    Adapter,
    AdapterContext,
    ContractError,
    Need,
    Registration,
    Verification,
    validate,
    validate_registration,
)
from differently_core.errors import InvalidRequest
from differently_core.model.pool import Trust
from differently_core.runtime.clock import Clock

FINGERPRINT_CHARACTERS = 16
LEVELS = (Verification.LIVE, Verification.REAL_SERVER, Verification.VENDOR_SDK, Verification.FAKE)
"""From the most real down."""


class TrustList(StrEnum):
    """Who says whether a kind's pools are private. Every kind stands in exactly one list, so none is by omission."""

    ALWAYS_EXTERNAL = "always_external"
    """Somebody else's machines, whatever the operator thinks of them."""
    OPERATOR_DECLARES = "operator_declares"
    """It can be self-hosted, so each pool says which it is."""
    DEV_ONLY = "dev_only"
    """For one developer's machine and for tests; refused in an installation."""


@dataclass(frozen=True)
class Row:
    """`module` offers `REGISTRATION` and the class named `adapter`."""

    module: str
    adapter: str
    trust: TrustList


_PROVIDERS = "differently_adapters.providers"
KINDS: Mapping[str, Row] = {
    "aws-lambda-microvms": Row(
        f"{_PROVIDERS}.aws_lambda_microvms", "LambdaMicrovmAdapter", TrustList.OPERATOR_DECLARES
    ),
    "azure-sessions": Row(f"{_PROVIDERS}.azure_sessions", "AzureSessionsAdapter", TrustList.OPERATOR_DECLARES),
    "blaxel": Row(f"{_PROVIDERS}.blaxel", "BlaxelAdapter", TrustList.ALWAYS_EXTERNAL),
    "boat": Row(f"{_PROVIDERS}.boat", "BoatAdapter", TrustList.ALWAYS_EXTERNAL),
    "cubesandbox": Row(f"{_PROVIDERS}.cubesandbox", "CubeSandboxAdapter", TrustList.OPERATOR_DECLARES),
    "daytona": Row(f"{_PROVIDERS}.daytona", "DaytonaAdapter", TrustList.OPERATOR_DECLARES),
    "devhost": Row(f"{_PROVIDERS}.devhost", "DevhostAdapter", TrustList.DEV_ONLY),
    "e2b": Row(f"{_PROVIDERS}.e2b", "E2bAdapter", TrustList.OPERATOR_DECLARES),
    "fake": Row(f"{_PROVIDERS}.fake", "FakeAdapter", TrustList.DEV_ONLY),
    "fly": Row(f"{_PROVIDERS}.fly", "FlyAdapter", TrustList.ALWAYS_EXTERNAL),
    "freestyle": Row(f"{_PROVIDERS}.freestyle", "FreestyleAdapter", TrustList.ALWAYS_EXTERNAL),
    "morph": Row(f"{_PROVIDERS}.morph", "MorphAdapter", TrustList.ALWAYS_EXTERNAL),
    "northflank": Row(f"{_PROVIDERS}.northflank", "NorthflankAdapter", TrustList.ALWAYS_EXTERNAL),
    "opensandbox": Row(f"{_PROVIDERS}.opensandbox", "OpenSandboxAdapter", TrustList.OPERATOR_DECLARES),
    "remote": Row("differently_adapters.remote", "RemoteAdapter", TrustList.OPERATOR_DECLARES),
    "vercel": Row(f"{_PROVIDERS}.vercel", "VercelAdapter", TrustList.ALWAYS_EXTERNAL),
}


@dataclass(frozen=True)
class Kind:
    adapter: type[Adapter]
    registration: Registration


@cache
def load(kind: str) -> Kind:
    """Import a kind and check its declaration; raises `InvalidRequest` for a kind that this build does not have."""
    row = KINDS.get(kind)
    if row is None:
        raise InvalidRequest(
            f"There is no adapter kind {kind!r}; known kinds: {', '.join(sorted(KINDS))}.", field="adapter"
        )
    module = import_module(row.module)
    loaded = Kind(getattr(module, row.adapter), module.REGISTRATION)
    validate(loaded.adapter)
    _check_registration(kind, row.trust, loaded)
    return loaded


def _check_registration(kind: str, trust: TrustList, loaded: Kind) -> None:
    registration = loaded.registration
    validate_registration(registration, loaded.adapter)
    if registration.kind != kind:
        raise ContractError(f"{kind}: kind: is registered as {registration.kind}")
    if trust not in list(TrustList):
        raise ContractError(f"{kind}: trust: stands in no list")
    if registration.dev_only != (trust is TrustList.DEV_ONLY):
        raise ContractError(f"{kind}: dev_only: is {registration.dev_only} in the list {trust}")
    if trust is TrustList.ALWAYS_EXTERNAL and registration.trust is not Trust.EXTERNAL:
        raise ContractError(f"{kind}: trust: the kind is always external and its registration does not say so")
    if trust is TrustList.OPERATOR_DECLARES and registration.trust is not None:
        raise ContractError(f"{kind}: trust: the operator declares it and the registration fixes it")


def check_level(kind: str, minimum: Verification) -> None:
    """Raises `InvalidRequest` for a kind that was tested against less than this installation wants."""
    level = load(kind).registration.verification
    if LEVELS.index(level) > LEVELS.index(minimum):
        raise InvalidRequest(
            f"Adapter kind {kind} was tested against a {level} at most, and this installation takes kinds from "
            f"{minimum} on. An operator can set adapters.minimumLevel to {level}.",
            field="adapter", adapter=kind, level=level.value, minimum=minimum.value,
        )  # fmt: skip


def parse_config(kind: str, config: Mapping[str, JsonValue]) -> BaseModel:
    """A pool's public configuration as its kind's typed model; raises `InvalidRequest` naming the first wrong field."""
    model = load(kind).registration.config
    try:
        return model.model_validate(dict(config))
    except ValidationError as error:
        # Only the place and the rule are quoted: the value may be a secret put in the wrong field.
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(str(part) for part in ("config", *first["loc"]))
        message = f"A pool of kind {kind} cannot use this configuration: {field}: {_rule(first['type'], first['msg'])}."
    raise InvalidRequest(message, field=field, adapter=kind)


_SUBJECT = re.compile(r"^\w+ should ")
"""pydantic says `Input should be…`; the field was named already."""
_RULES: Final = {
    "extra_forbidden": "there is no such setting; leave it out",
    "missing": "is required",
    "path_type": "must be a path",
}


def _rule(kind: str, text: str) -> str:
    """What was not met, in words that need no knowledge of Python."""
    rule = _RULES.get(kind) or _SUBJECT.sub("must ", text.removeprefix("Value error, ")).rstrip(".")
    return f"{rule[:1].lower()}{rule[1:]}"


def fingerprint(kind: str, config: Mapping[str, JsonValue]) -> str:
    """The same for two pools that lead to one backend: their kind, and what of their configuration says where."""
    registration = load(kind).registration
    told = parse_config(kind, config).model_dump(mode="json", include=set(registration.identity_fields))
    text = json.dumps([kind, told], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_CHARACTERS]


def _credential(registration: Registration, given: Mapping[str, str] | None) -> Mapping[str, str]:
    """The fields as the kind names them. A refusal names the kind's fields and none that was given: it may be a key."""
    names, need = registration.requirements.credential_fields, registration.requirements.credential
    if given is None:
        if need is Need.REQUIRED:
            raise _unusable(registration, f"needs one, with the fields {', '.join(names)}")
        return {}
    if need is Need.NONE:
        raise _unusable(registration, "takes none; leave it out")
    if set(given) == {WHOLE}:
        if len(names) != 1:
            raise _unusable(registration, f"needs a JSON object of the fields {', '.join(names)}")
        return {names[0]: given[WHOLE]}
    if not given or not set(given) <= set(names):
        raise _unusable(registration, f"has the fields {', '.join(names)} and no others")
    return dict(given)


def _unusable(registration: Registration, rule: str) -> InvalidRequest:
    return InvalidRequest(
        f"The credential of a pool of kind {registration.kind} {rule}.", field="credential", adapter=registration.kind
    )


def build(
    kind: str,
    config: Mapping[str, JsonValue],
    *,
    pool: str,
    installation: str,
    clock: Clock,
    credential: Mapping[str, str] | None = None,
    retired: tuple[str, ...] = (),
    dev: bool = False,
) -> Adapter:
    """An adapter for one pool, without any I/O. `dev` permits the kinds that run work unprotected or nowhere."""
    loaded = load(kind)
    if loaded.registration.dev_only and not dev:
        raise InvalidRequest(
            f"Adapter kind {kind} is for development only: it gives no isolation.",
            field="adapter",
            adapter=kind,
        )
    context = AdapterContext(
        pool=pool, installation=installation, config=parse_config(kind, config), clock=clock,
        credential=_credential(loaded.registration, credential), retired=retired,
    )  # fmt: skip
    return loaded.adapter(context)
