"""API keys: making them, proving them, replacing and revoking them.

A key is `dk_<id>_<secret>`. The store holds a keyed hash of the secret under a versioned pepper, so a copy of the table
proves nothing. A wrong, unknown, revoked or expired key does the same work and gets the same answer.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ..errors import Forbidden, InvalidRequest, InvalidState, NotFound, Unauthenticated
from ..model.record import Key
from ..model.tenancy import OPERATOR_ORG, ApiKey, ApiKeyEntry, KeyScope
from ..runtime.ids import KeyId, OrgId, ProjectId, is_id
from ..store.ports import PAGE_ROWS_MAX, Absent, Action, Committed, Equals, Put, StoreThrottled
from .core import Caller, Core
from .standing import check_open

PREFIX = "dk"
GRACE_SECONDS_MIN = 120
"""Twice as long as a gateway remembers a key. What it remembers from before the rotation does not know of the end."""
GRACE_SECONDS_DEFAULT = 24 * 3600
GRACE_SECONDS_MAX = 90 * 24 * 3600


@dataclass(frozen=True)
class Peppers:
    """Hash keys by version; the newest signs new keys, older ones still prove theirs until they are removed."""

    secrets: Mapping[int, bytes] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.secrets or any(len(secret) < 32 for secret in self.secrets.values()):
            raise ValueError("at least one pepper of 32 bytes or more is needed")

    @property
    def newest(self) -> int:
        return max(self.secrets)

    def digest(self, secret: str, version: int | None = None) -> str:
        pepper = self.secrets.get(self.newest if version is None else version, b"\0" * 32)
        return hmac.new(pepper, secret.encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class NewKey:
    """The only moment at which the secret exists in clear."""

    key: ApiKey
    token: str = field(repr=False)


def create_key(
    core: Core, peppers: Peppers, caller: Caller, name: str, scope: KeyScope, *, org: OrgId | None = None,
    project: ProjectId | None = None, expires_at: datetime | None = None,
) -> NewKey:  # fmt: skip
    """Make a key; a tenant key names organization and project, an operator key neither."""
    if scope is KeyScope.TENANT:
        if org is None or project is None:
            raise InvalidRequest("A tenant key needs projectId.", field="projectId")
        core.catalog.project(org, project)
        check_open(core.catalog.org(org))
        check_open(core.catalog.project(org, project))
    if expires_at is not None and expires_at <= core.clock.now():
        raise InvalidRequest("expiresAt lies in the past.", field="expiresAt")
    made = _fresh(core, peppers, caller, name, scope, org, project, expires_at)
    event = core.event(
        caller, "key.create", made.key.id, _owner(made.key), project=project, details={"scope": scope.value}
    )
    core.commit([*_rows(made.key), Put(event, (Absent(),), "event")])
    return made


def _fresh(
    core: Core, peppers: Peppers, caller: Caller, name: str, scope: KeyScope, org: OrgId | None,
    project: ProjectId | None, expires_at: datetime | None,
) -> NewKey:  # fmt: skip
    identity, secret = KeyId(core.ids.new("key")), core.ids.secret()
    key = ApiKey(
        id=identity, name=name, scope=scope, org=org, project=project, digest=peppers.digest(secret),
        pepper=peppers.newest, created_at=core.clock.now(), created_by=caller.actor, expires_at=expires_at,
    )  # fmt: skip
    return NewKey(key, token(identity, secret))


def _owner(key: ApiKey) -> OrgId:
    return key.org or OPERATOR_ORG


def _rows(key: ApiKey) -> list[Action]:
    return [Put(key, (Absent(),), "key"), Put(ApiKeyEntry(id=key.id, org=_owner(key)), (Absent(),), "entry")]


def token(key: KeyId, secret: str) -> str:
    return f"{PREFIX}_{key.removeprefix('key_')}_{secret}"


def parse(text: str) -> tuple[KeyId, str] | None:
    prefix, _, rest = text.partition("_")
    identity, _, secret = rest.partition("_")
    key = f"key_{identity}"
    if prefix != PREFIX or not is_id("key", key) or not 20 <= len(secret) <= 128:
        return None
    return KeyId(key), secret


def prove(core: Core, peppers: Peppers, text: str) -> ApiKey:
    """The key behind a token; raises `Unauthenticated` without saying what was wrong until the secret is right."""
    parsed = parse(text)
    key = core.store.get(ApiKey, ApiKey.key_of(parsed[0])) if parsed is not None else None
    secret = parsed[1] if parsed is not None else text
    expected = key.digest if key is not None else "0" * 64
    genuine = hmac.compare_digest(peppers.digest(secret, key.pepper if key is not None else None), expected)
    if key is None or not genuine:
        raise Unauthenticated("The API key is not valid. Send it as `Authorization: Bearer dk_…`.")
    return _in_force(core, key)


def usable(core: Core, key: KeyId) -> ApiKey:
    """A key that was proved a moment ago, as it stands now; for calls that a revoked key must not make any more."""
    found = core.store.get(ApiKey, ApiKey.key_of(key))
    if found is None:
        raise Unauthenticated("This API key does not exist any more; use another one.", keyId=key)
    return _in_force(core, found)


def _in_force(core: Core, key: ApiKey) -> ApiKey:
    if key.revoked_at is not None:
        raise Unauthenticated("This API key was revoked; use another one.", keyId=key.id)
    if key.expires_at is not None and key.expires_at <= core.clock.now():
        raise Unauthenticated("This API key has expired; use another one.", keyId=key.id)
    return key


def caller_of(key: ApiKey, request_id: str) -> Caller:
    return Caller(actor=key.id, request_id=request_id, scope=key.scope, org=key.org, project=key.project)


def require_operator(caller: Caller) -> None:
    if not caller.operator:
        raise Forbidden("This needs an operator key.", scope="operator")


def get_key(core: Core, key: str) -> ApiKey:
    found = core.store.get(ApiKey, ApiKey.key_of(KeyId(key))) if is_id("key", key) else None
    if found is None:
        raise NotFound(f"There is no API key {key[:64]!r}.")
    return found


def list_keys(core: Core, org: OrgId, after: str | None, limit: int) -> tuple[list[ApiKey], str | None]:
    """Oldest first; two round trips."""
    table, pk, _ = ApiKeyEntry.key_of(org, KeyId(""))
    page = core.store.query(table, pk, after=after, limit=min(limit, PAGE_ROWS_MAX, 100))
    keys: list[tuple[type[ApiKey], Key]] = [
        (ApiKey, ApiKey.key_of(row.id)) for row in page.rows if isinstance(row, ApiKeyEntry)
    ]
    rows = core.store.batch_get(keys) if keys else []
    return [row for row in rows if isinstance(row, ApiKey)], page.next


@dataclass(frozen=True)
class Rotation:
    made: NewKey
    replaced: ApiKey


def rotate_key(core: Core, peppers: Peppers, caller: Caller, key: str, grace_seconds: int) -> Rotation:
    """Make a key that takes another's place; both work for `grace_seconds`, then only the new one.

    The new key ends when the old one was to end, and the grace never makes a key last longer than it would have.
    Raises `InvalidRequest` for a grace that would not end on time, `InvalidState` for a key that is not in force or
    has a successor: a rotation whose answer was lost is made good by rotating that one.
    """
    if 0 < grace_seconds < GRACE_SECONDS_MIN:
        raise InvalidRequest(
            f"graceSeconds must be 0 or at least {GRACE_SECONDS_MIN}: a shorter grace could not end on time.",
            field="graceSeconds",
        )
    for _ in range(core.tuning.conflict_tries_max):
        old = get_key(core, key)
        _check_rotates(core, old)
        made = _fresh(core, peppers, caller, old.name, old.scope, old.org, old.project, old.expires_at)
        ends = core.clock.now() + timedelta(seconds=grace_seconds)
        replaced = old.with_(
            rotated_to=made.key.id, expires_at=min(ends, old.expires_at or ends), version=old.version + 1
        )
        event = core.event(
            caller, "key.rotate", old.id, _owner(old), project=old.project,
            details={"successor": made.key.id, "graceSeconds": grace_seconds},
        )  # fmt: skip
        put = Put(replaced, (Equals("version", old.version),), "replaced")
        if isinstance(core.commit([put, *_rows(made.key), Put(event, (Absent(),), "event")]), Committed):
            return Rotation(made, replaced)
    raise StoreThrottled("This key is being changed by others right now; repeat the call.")


def _check_rotates(core: Core, key: ApiKey) -> None:
    if key.rotated_to is not None:
        raise InvalidState(
            f"This key was replaced by {key.rotated_to} already; rotate that one.", rotatedTo=key.rotated_to
        )
    if key.revoked_at is not None:
        raise InvalidState("This key was revoked; make a new one with POST /v1/api-keys.")
    if key.expires_at is not None and key.expires_at <= core.clock.now():
        raise InvalidState("This key has expired; make a new one with POST /v1/api-keys.")


def revoke_key(core: Core, caller: Caller, key: str) -> ApiKey:
    """Revoke; repeating it is success. Authorizers may remember the key for up to a minute more."""
    for _ in range(core.tuning.conflict_tries_max):
        found = get_key(core, key)
        if found.revoked_at is not None:
            return found
        revoked = found.with_(revoked_at=core.clock.now(), version=found.version + 1)
        event = core.event(caller, "key.revoke", found.id, _owner(found), project=found.project)
        outcome = core.commit(
            [Put(revoked, (Equals("version", found.version),), "key"), Put(event, (Absent(),), "event")]
        )
        if isinstance(outcome, Committed):
            return revoked
    raise StoreThrottled("This key is being changed by others right now; repeat the call.")
