"""Provider credentials: set, told of, removed. A value goes in, and comes out only where an adapter is built.

Every field is sealed by itself under a context that names the installation, the secret, the field and the revision, so
a sealed field that is copied to another row, or brought back from an older revision, does not open.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import InvalidRequest, InvalidState, NotFound
from ..model.pool import Pool
from ..model.secret import SECRET_NAME_PATTERN, STORED, SealedFields, Secret
from ..model.tenancy import OPERATOR_ORG
from ..store.ports import PAGE_ROWS_MAX, Absent, Action, Committed, Condition, Delete, Equals, Put, StoreThrottled
from ..store.sealing import Sealer
from . import pools, trials
from .core import Caller, Core

log = logging.getLogger(__name__)
NAMES_TOLD = 10
_NAME = re.compile(SECRET_NAME_PATTERN)


@dataclass(frozen=True)
class Kept:
    """`created` is False where an older value was replaced."""

    secret: Secret
    created: bool


def put(core: Core, caller: Caller, name: str, fields: Mapping[str, str], *, verify: bool = True) -> Kept:
    """Keep these fields under the name in the place of all that were there, for every pool that uses it, or for none.

    Raises `InvalidRequest` when the kind of such a pool has other fields, and with `verify` `InvalidState` when the
    backend of one does not take them: then nothing was changed.
    """
    _check_name(name)
    sealed = seal(core.sealer, core.catalog.installation().id, name, core.ids.new("rev"), fields)
    for _ in range(core.tuning.conflict_tries_max):
        before = core.store.get(Secret, Secret.key_of(name))
        # Read after the secret: a pool that begins to use it later moves it, and then this write is refused.
        users = [pool for pool in pools.every(core) if pool.credential == f"{STORED}{name}"]
        _try(core, users, fields, verify=verify)
        secret = _replacing(core, caller, before, sealed, len(users))
        details = {"version": secret.version, "pools": len(users), "verified": verify}
        actions: list[Action] = [
            Put(secret, (Absent(),) if before is None else _untouched(before), "secret"),
            Put(sealed, (Absent(),), "fields"),
            Put(core.event(caller, "secret.put", name, OPERATOR_ORG, details=details), (Absent(),), "event"),
            *(_pointed(pool, sealed.revision) for pool in users),
        ]
        if before is not None:
            actions.append(Delete(SealedFields, SealedFields.key_of(name, before.revision), "replaced"))
        if isinstance(core.commit(actions), Committed):
            core.catalog.forget_pools()
            return Kept(secret, created=before is None)
    raise StoreThrottled("This secret is being changed by others right now; repeat the call.")


def _try(core: Core, users: Sequence[Pool], fields: Mapping[str, str], *, verify: bool) -> None:
    for pool in users:
        try:
            with trials.trial(core, pool, fields) as adapter:
                if verify:
                    trials.verify(core, pool, adapter)
        except InvalidRequest as error:
            if error.details.get("field") == "credential":
                raise
            # Its kind is not built or not taken any more: with no credential it could be used.
            log.info("credential not tried", extra={"pool": pool.name, "error": error.message})


def _untouched(secret: Secret) -> tuple[Condition, ...]:
    return Equals("version", secret.version), Equals("moves", secret.moves)


def _pointed(pool: Pool, revision: str | None) -> Action:
    """The pool takes up the revision, in every process that reads it."""
    changed = pool.with_(credential_revision=revision, version=pool.version + 1)
    return Put(changed, (Equals("version", pool.version),), f"pool {pool.name}")


def _replacing(core: Core, caller: Caller, before: Secret | None, sealed: SealedFields, users: int) -> Secret:
    now = core.clock.now()
    return Secret(
        name=sealed.name,
        revision=sealed.revision,
        version=before.version + 1 if before is not None else 1,
        fields=tuple(sorted(sealed.fields)),
        users=users,
        moves=before.moves if before is not None else 0,
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


def remove(core: Core, caller: Caller, name: str, *, force: bool = False) -> None:
    """Forget a secret that no pool uses. One that is gone already is `NotFound`.

    With `force` its pools lose it: they cannot be used until it is put again or they are given another.
    """
    for _ in range(core.tuning.conflict_tries_max):
        found = get(core, name)
        users = [pool for pool in pools.every(core) if pool.credential == f"{STORED}{name}"]
        if users and not force:
            names = [pool.name for pool in users]
            raise InvalidState(
                f"The secret {name!r} is used by {', '.join(names[:NAMES_TOLD])}. Give these pools another credential "
                "or remove them, then repeat; with force=true they stay and cannot be used.",
                secret=name, pools=names[:NAMES_TOLD],
            )  # fmt: skip
        details = {"version": found.version, "pools": len(users), "forced": bool(users)}
        event = core.event(caller, "secret.delete", name, OPERATOR_ORG, details=details)
        actions: list[Action] = [
            Delete(Secret, found.key(), "secret", _untouched(found)),
            Delete(SealedFields, SealedFields.key_of(name, found.revision), "fields"),
            Put(event, (Absent(),), "event"),
            *(_pointed(pool, None) for pool in users),
        ]
        if isinstance(core.commit(actions), Committed):
            core.catalog.forget_pools()
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
