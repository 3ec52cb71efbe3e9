"""Provider credentials: set, told of, removed. A value goes in, and comes out only where an adapter is built.

Every field is sealed by itself under a context that names the installation, the secret, the field and the revision, so
a sealed field that is copied to another row, or brought back from an older revision, does not open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import InvalidRequest, InvalidState, NotFound
from ..model.secret import SECRET_NAME_PATTERN, SealedFields, Secret
from ..model.tenancy import OPERATOR_ORG
from ..store.ports import PAGE_ROWS_MAX, Absent, Action, Committed, Delete, Equals, Put, StoreThrottled
from ..store.sealing import Sealer
from .core import Caller, Core

_NAME = re.compile(SECRET_NAME_PATTERN)


@dataclass(frozen=True)
class Kept:
    """`created` is False where an older value was replaced."""

    secret: Secret
    created: bool


def put(core: Core, caller: Caller, name: str, fields: Mapping[str, str]) -> Kept:
    """Keep these fields under the name, in the place of all that were there."""
    _check_name(name)
    sealed = seal(core.sealer, core.catalog.installation().id, name, core.ids.new("rev"), fields)
    for _ in range(core.tuning.conflict_tries_max):
        before = core.store.get(Secret, Secret.key_of(name))
        secret = _replacing(core, caller, before, sealed)
        actions: list[Action] = [
            Put(secret, (Absent(),) if before is None else (Equals("version", before.version),), "secret"),
            Put(sealed, (Absent(),), "fields"),
            Put(
                core.event(caller, "secret.put", name, OPERATOR_ORG, details={"version": secret.version}),
                (Absent(),),
                "event",
            ),
        ]
        if before is not None:
            actions.append(Delete(SealedFields, SealedFields.key_of(name, before.revision), "replaced"))
        if isinstance(core.commit(actions), Committed):
            return Kept(secret, created=before is None)
    raise StoreThrottled("This secret is being changed by others right now; repeat the call.")


def _replacing(core: Core, caller: Caller, before: Secret | None, sealed: SealedFields) -> Secret:
    now = core.clock.now()
    return Secret(
        name=sealed.name,
        revision=sealed.revision,
        version=before.version + 1 if before is not None else 1,
        fields=tuple(sorted(sealed.fields)),
        users=before.users if before is not None else 0,
        created_at=before.created_at if before is not None else now,
        updated_at=now,
        updated_by=caller.actor,
    )


def get(core: Core, name: str) -> Secret:
    """What may be told of it."""
    _check_name(name)
    found = core.store.get(Secret, Secret.key_of(name))
    if found is None:
        raise NotFound(f"There is no secret {name!r}.", secret=name)
    return found


def listed(core: Core, after: str | None, limit: int) -> tuple[list[Secret], str | None]:
    """By name; one round trip."""
    table, pk, _ = Secret.key_of("")
    page = core.store.query(table, pk, after=after, limit=min(limit, PAGE_ROWS_MAX))
    return [row for row in page.rows if isinstance(row, Secret)], page.next


def remove(core: Core, caller: Caller, name: str) -> None:
    """Forget a secret that no pool uses. One that is gone already is `NotFound`."""
    for _ in range(core.tuning.conflict_tries_max):
        found = get(core, name)
        if found.users > 0:
            raise InvalidState(
                f"{found.users} pools use the secret {name!r}. Give them another credential or remove them, then "
                "repeat.",
                secret=name, pools=found.users,
            )  # fmt: skip
        event = core.event(caller, "secret.delete", name, OPERATOR_ORG, details={"version": found.version})
        outcome = core.commit(
            [
                Delete(Secret, found.key(), "secret", (Equals("version", found.version), Equals("users", 0))),
                Delete(SealedFields, SealedFields.key_of(name, found.revision), "fields"),
                Put(event, (Absent(),), "event"),
            ]
        )
        if isinstance(outcome, Committed):
            return
    raise StoreThrottled("This secret is being changed by others right now; repeat the call.")


def seal(sealer: Sealer, installation: str, name: str, revision: str, fields: Mapping[str, str]) -> SealedFields:
    return SealedFields(
        name=name,
        revision=revision,
        fields={
            field: sealer.seal(value, _context(installation, name, field, revision)) for field, value in fields.items()
        },
    )


def unseal(sealer: Sealer, installation: str, sealed: SealedFields) -> dict[str, str]:
    """The values. Raises `Unsealable` or `SealingUnavailable`."""
    return {
        field: sealer.unseal(text, _context(installation, sealed.name, field, sealed.revision))
        for field, text in sealed.fields.items()
    }


def _context(installation: str, name: str, field: str, revision: str) -> dict[str, str]:
    return {"installation": installation, "secret": name, "field": field, "revision": revision}


def _check_name(name: str) -> None:
    """What does not look like a name is not repeated: it may be the secret itself."""
    if _NAME.fullmatch(name) is None:
        raise InvalidRequest(
            "A secret's name has 1 to 63 lower-case letters, digits and dashes, and begins with a letter.", field="name"
        )
