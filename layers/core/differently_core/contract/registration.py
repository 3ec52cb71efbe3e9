"""What a kind publishes of itself, and that it is whole: consoles, commands and docs show it and name no kind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pydantic import BaseModel, JsonValue

from ..model.described import describe, reached
from ..model.pool import Trust
from .adapter import Adapter
from .operations import Operation, Supported
from .validation import ContractError

_KIND: Final = re.compile("[a-z][a-z0-9-]{0,31}")
_FIELD: Final = re.compile("[a-z][a-z0-9_]{0,63}")
_SENTENCES: Final = re.compile(r"[^\s][^\n]{0,298}\.")
_SECRET: Final = re.compile(r"(^|_)(secret|password|passwd|token|api_?key|private_?key|credentials?)$", re.IGNORECASE)
_TYPES: Final = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})


class Need(StrEnum):
    REQUIRED = "required"
    OPTIONAL = "optional"
    NONE = "none"


class Verification(StrEnum):
    """The most real thing that the adapter passed its tests against."""

    LIVE = "live"
    """The service itself, with an account."""
    REAL_SERVER = "real server"
    """The vendor's own server, run by us."""
    VENDOR_SDK = "vendor SDK"
    """The vendor's client, so that requests and answers have the shape that the vendor gives them."""
    FAKE = "fake"
    """A stand-in of ours."""


@dataclass(frozen=True)
class Requirements:
    """What a pool of the kind needs besides its configuration; a kind decides every field."""

    credential: Need
    credential_fields: tuple[str, ...]
    """The names in a stored credential, such as `api_key`."""


@dataclass(frozen=True)
class Registration:
    """One kind. `config` is its typed configuration; `trust` is None where the operator must declare it."""

    kind: str
    config: type[BaseModel]
    trust: Trust | None
    dev_only: bool
    summary: str
    requirements: Requirements
    verification: Verification
    limits: tuple[str, ...]
    """What it cannot do or does otherwise than one would expect: whole sentences."""
    tested_versions: tuple[str, ...] = ()
    """Releases of the backend that the tests ran against; a pool on another one carries a warning."""
    identity: tuple[str, ...] = ()
    """Fields of the configuration that say which backend a pool leads to; by default each of them does."""

    @property
    def identity_fields(self) -> tuple[str, ...]:
        return self.identity or tuple(self.config.model_fields)

    def wire_name(self, field: str) -> str:
        """How a field of the configuration is called in JSON."""
        return self.config.model_fields[field].alias or field

    def schema(self) -> dict[str, JsonValue]:
        """JSON Schema of the configuration, the kind's own settings before those that it inherits."""
        schema = self.config.model_json_schema()
        inner: dict[str, dict[str, JsonValue]] = schema.get("$defs", {})
        for model in reached([self.config]):
            describe(schema if model is self.config else inner[model.__name__], model)
        own = {self.wire_name(name) for name in self.config.__annotations__ if name in self.config.model_fields}
        properties = schema.get("properties", {})
        schema["properties"] = dict(sorted(properties.items(), key=lambda entry: entry[0] not in own))
        return schema


def validate_registration(registration: Registration, adapter: type[Adapter]) -> None:
    """Check a registration by itself and against its class; raises `ContractError` naming the first wrong entry."""
    for entry, wrong in _faults(registration, adapter):
        if wrong:
            raise ContractError(f"{registration.kind}: {entry}: {wrong}")


def _faults(registration: Registration, adapter: type[Adapter]) -> Iterator[tuple[str, str]]:
    """Entries in the order they are looked at, each with what is wrong with it, if anything is."""
    is_kind = _KIND.fullmatch(registration.kind) and registration.kind == adapter.kind
    yield "kind", "" if is_kind else f"is no name, or {adapter.__name__} is registered under another than its own"
    yield "trust", "" if registration.trust in (None, *Trust) else "is not one of the two, nor left to the operator"
    yield "summary", "" if _SENTENCES.fullmatch(registration.summary) else "is not a sentence"
    whole = isinstance(registration.limits, tuple) and all(_SENTENCES.fullmatch(text) for text in registration.limits)
    yield "limits", "" if whole else "are not sentences"
    known = isinstance(registration.verification, Verification)
    yield "verification", "" if known else "is not a level that there is"
    yield "requirements.credential", _credential_fault(registration.requirements, adapter)
    yield "requirements.credential_fields", _fields_fault(registration.requirements)
    yield "config", _config_fault(registration)
    unknown = sorted(set(registration.identity) - set(registration.config.model_fields))
    yield "identity", f"{unknown[0]} is no field of the configuration" if unknown else ""


def _credential_fault(requirements: Requirements, adapter: type[Adapter]) -> str:
    if not isinstance(requirements.credential, Need):
        return "is not decided"
    verifies = isinstance(adapter.operations[Operation.VERIFY_CREDENTIAL], Supported)
    if verifies and requirements.credential is Need.NONE:
        return f"{adapter.__name__} verifies a credential that no pool of it has"
    return ""


def _fields_fault(requirements: Requirements) -> str:
    fields = requirements.credential_fields
    if not all(_FIELD.fullmatch(name) for name in fields) or len(set(fields)) < len(fields):
        return "holds a name that is none, or one twice"
    if bool(fields) != (requirements.credential is not Need.NONE):
        return f"does not go with a credential that is {requirements.credential}"
    return ""


def _config_fault(registration: Registration) -> str:
    settings = registration.config.model_config
    if settings.get("extra") != "forbid":
        return "must refuse unknown fields"
    if not settings.get("frozen"):
        return "must be frozen"
    secret = next((name for name in registration.config.model_fields if _SECRET.search(name)), None)
    if secret is not None:
        return f"{secret} is public here and belongs in the credential"
    try:
        schema = registration.schema()
    except Exception as error:  # pydantic has several kinds
        return f"has no JSON Schema ({type(error).__name__})"
    if schema.get("type") != "object":
        return "is not an object"
    return next(_schema_faults(schema, schema, "config"), "")


def _schema_faults(schema: JsonValue, whole: Mapping[str, JsonValue], place: str) -> Iterator[str]:
    """What no reader of JSON Schema could use; a full check against the standard is the tests' business."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield f"{place} is no schema"
        return
    types = schema.get("type", [])
    if any(name not in _TYPES for name in (types if isinstance(types, list) else [types])):
        yield f"{place} has a type that JSON does not have"
    pointer = schema.get("$ref")
    if pointer is not None and not _is_defined(pointer, whole):
        yield f"{place} refers to nothing"
    if not _is_pattern(schema.get("pattern", "")):
        yield f"{place} has a pattern that is none"
    for word in ("properties", "$defs"):
        for name, inner in _members(schema.get(word, {})):
            yield from _schema_faults(inner, whole, f"{place}.{name}")
    for word in ("anyOf", "allOf", "oneOf"):
        for number, inner in enumerate(_items(schema.get(word, []))):
            yield from _schema_faults(inner, whole, f"{place}.{word}.{number}")
    for word in ("items", "additionalProperties"):
        yield from _schema_faults(schema.get(word, True), whole, f"{place}.{word}")


def _is_defined(pointer: JsonValue, whole: Mapping[str, JsonValue]) -> bool:
    return isinstance(pointer, str) and pointer.removeprefix("#/$defs/") in dict(_members(whole.get("$defs", {})))


def _is_pattern(pattern: JsonValue) -> bool:
    if not isinstance(pattern, str):
        return False
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _members(value: JsonValue) -> list[tuple[str, JsonValue]]:
    return list(value.items()) if isinstance(value, dict) else [("", None)]


def _items(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else [None]
