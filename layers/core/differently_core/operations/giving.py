"""Secrets of a project, given to a sandbox: bound when it is created, opened where its environment is made.

A sandbox keeps what it was given, sealed, in a row of its own. So a replaced or deleted secret changes nothing for
those that run, and what they write is masked with the values that they really hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import InvalidRequest, LimitExceeded, NotFound, UnsupportedCapability
from ..model.record import Key
from ..model.sandbox import GivenSecret, Sandbox
from ..model.secret import BOUND_MAX, BoundSecret, ProjectSecret, SandboxSecrets
from ..runtime.ids import ProjectId
from ..store.sealing import Unsealable
from .core import Core, Values
from .masking import Mask
from .requests import GiveSecret


def context(core: Core, project: ProjectId, name: str, revision: str) -> Mapping[str, str]:
    """What a sealed value opens under, wherever it lies."""
    return {
        "installation": core.catalog.installation().id, "project": project, "secret": name, "field": "value",
        "revision": revision,
    }  # fmt: skip


def bind(
    core: Core, sandbox: Sandbox, asked: Sequence[GiveSecret], left: Sequence[BoundSecret] = ()
) -> tuple[tuple[GivenSecret, ...], tuple[BoundSecret, ...]]:
    """What a new sandbox is given, by name and sealed, with what is `left` of others in what it is made from.

    One round trip, none when nothing is asked for. Raises `UnsupportedCapability` where a policy does not allow it,
    `NotFound` for a secret that there is not, and `LimitExceeded` for more than a row holds.
    """
    if not asked:
        return (), tuple(left)
    _check_permitted(core, sandbox)
    keys: list[tuple[type[ProjectSecret], Key]] = [
        (ProjectSecret, ProjectSecret.key_of(sandbox.project, name)) for name in {entry.secret for entry in asked}
    ]
    rows = core.store.batch_get(keys)
    found = {row.name: row for row in rows if isinstance(row, ProjectSecret)}
    for entry in asked:
        if entry.secret not in found:
            raise NotFound(f"This project has no secret {entry.secret!r}.", field="secrets", secret=entry.secret)
    given, bound = [], []
    for entry in asked:
        secret = found[entry.secret]
        given.append(GivenSecret(env=entry.env, secret=secret.name, version=secret.version))
        bound.append(BoundSecret(env=entry.env, secret=secret.name, revision=secret.revision, sealed=secret.sealed))
    fresh = {(entry.secret, entry.revision) for entry in bound}
    bound += [entry for entry in left if (entry.secret, entry.revision) not in fresh]
    if len(bound) > BOUND_MAX:
        raise LimitExceeded(
            f"This sandbox and what it is made from have {len(bound)} secrets together, and {BOUND_MAX} may be masked.",
            resource="secrets", requested=len(bound), limit=BOUND_MAX,
        )  # fmt: skip
    return tuple(given), tuple(bound)


def traces(core: Core, sandbox: Sandbox) -> tuple[BoundSecret, ...]:
    """What a copy of the sandbox may hold of its secrets; one round trip, none when it has none."""
    row = core.store.get(SandboxSecrets, SandboxSecrets.key_of(sandbox.id)) if sandbox.masks else None
    return tuple(entry.model_copy(update={"env": None}) for entry in row.bound) if row is not None else ()


def given(core: Core, sandbox: Sandbox) -> Mapping[str, str]:
    """The variables that its secrets become at the backend; none for a sandbox that was given none.

    Asks the policies again: what waited in the queue may not be permitted any more. Raises `InvalidRequest` where it
    can never be given them, and `SealingUnavailable` when they cannot be opened just now.
    """
    if not sandbox.secrets:
        return {}
    try:
        _check_permitted(core, sandbox)
        return {env: value for env, value in _opened(core, sandbox) if env is not None}
    except (UnsupportedCapability, Unsealable, NotFound) as error:
        problem = InvalidRequest(error.message, field="secrets")
    raise problem


def mask_of(core: Core, sandbox: Sandbox) -> Mask | None:
    """What its commands must not tell; None when there is nothing. Raises when that cannot be known."""
    return Mask(value for _, value in _opened(core, sandbox)) if sandbox.masks else None


def _check_permitted(core: Core, sandbox: Sandbox) -> None:
    if not core.catalog.rules(sandbox.org, sandbox.project, sandbox.classification).secrets_in_env:
        raise UnsupportedCapability(
            "Secrets would be given to this sandbox as environment variables, and a policy that applies does not allow "
            "that. Leave secrets out, or ask an operator for secretsInEnv.",
            field="secrets",
        )


def _opened(core: Core, sandbox: Sandbox) -> Values:
    known = core.opened.get(sandbox.id)
    if known is not None:
        return known
    row = core.store.get(SandboxSecrets, SandboxSecrets.key_of(sandbox.id))
    if row is None:
        raise NotFound("The secrets of this sandbox are gone, as it has ended.", sandboxId=sandbox.id)
    values = tuple(
        (bound.env, core.sealer.unseal(bound.sealed, context(core, row.project, bound.secret, bound.revision)))
        for bound in row.bound
    )
    core.opened.put(sandbox.id, values)
    return values
