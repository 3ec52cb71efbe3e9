"""Installation, organizations, projects and API keys."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from ..runtime.ids import InstallationId, KeyId, OrgId, ProjectId
from .quota import Limits
from .record import Key, Record, Table

OPERATOR_ORG = OrgId("operators")
"""The organization name that events of operators without a tenant are filed under."""


class Installation(Record):
    """Made once. Its id is stamped on every instance, so two installations never touch each other's."""

    kind: ClassVar[str] = "installation"
    table: ClassVar[Table] = Table.CONFIG

    id: InstallationId
    id_salt: str
    """Keys the hash that turns an Idempotency-Key into the random bits of a sandbox id; never changes."""
    created_at: datetime

    @staticmethod
    def key_of() -> Key:
        return Key(Table.CONFIG, "INSTALLATION", "META")

    def key(self) -> Key:
        return self.key_of()


class TenantState(StrEnum):
    ACTIVE = "active"
    SUSPENDED = "suspended"
    """Nothing new starts; reads, use of what runs, and deletes go on."""
    ARCHIVING = "archiving"
    """Its keys are revoked and everything in it is removed; then it is archived, for good."""
    ARCHIVED = "archived"
    DELETING = "deleting"
    DELETED = "deleted"
    """Its row stays, without its name, so that what still names it finds an end."""


CLOSED = frozenset({TenantState.ARCHIVING, TenantState.ARCHIVED, TenantState.DELETING, TenantState.DELETED})
OPEN = frozenset(TenantState) - CLOSED


class StateReason(BaseModel):
    """Why an organization or project is in its state: what the operator wrote, who that was, when."""

    model_config = ConfigDict(frozen=True)

    detail: str = ""
    by: str
    at: datetime


class Org(Record):
    kind: ClassVar[str] = "org"
    table: ClassVar[Table] = Table.CONFIG
    native: ClassVar[tuple[str, ...]] = ("version", "state")

    id: OrgId
    name: str
    limits: Limits = Limits()
    weight: int = 1
    state: TenantState = TenantState.ACTIVE
    reason: StateReason | None = None
    version: int = 1
    created_at: datetime

    @staticmethod
    def key_of(org: OrgId) -> Key:
        return Key(Table.CONFIG, f"ORG#{org}", "META")

    def key(self) -> Key:
        return self.key_of(self.id)


class OrgEntry(Record):
    """An organization's line in the list of all organizations."""

    kind: ClassVar[str] = "org_entry"
    table: ClassVar[Table] = Table.CONFIG

    id: OrgId
    name: str
    created_at: datetime

    def key(self) -> Key:
        return Key(Table.CONFIG, "ORGS", self.id)


class Project(Record):
    kind: ClassVar[str] = "project"
    table: ClassVar[Table] = Table.CONFIG
    native: ClassVar[tuple[str, ...]] = ("version", "state")

    id: ProjectId
    org: OrgId
    name: str
    limits: Limits = Limits()
    state: TenantState = TenantState.ACTIVE
    reason: StateReason | None = None
    version: int = 1
    created_at: datetime

    @staticmethod
    def key_of(org: OrgId, project: ProjectId) -> Key:
        return Key(Table.CONFIG, f"ORG#{org}", f"PROJECT#{project}")

    def key(self) -> Key:
        return self.key_of(self.org, self.id)


class ProjectEntry(Record):
    """Finds a project's organization by the project id alone; ids never move between organizations."""

    kind: ClassVar[str] = "project_entry"
    table: ClassVar[Table] = Table.CONFIG

    id: ProjectId
    org: OrgId

    @staticmethod
    def key_of(project: ProjectId) -> Key:
        return Key(Table.CONFIG, f"PROJECT#{project}", "META")

    def key(self) -> Key:
        return self.key_of(self.id)


class KeyScope(StrEnum):
    OPERATOR = "operator"
    """Runs the installation: pools, organizations, keys; names the project it acts in."""
    TENANT = "tenant"
    """Uses sandboxes of one project."""


class ApiKey(Record):
    """What proves a key: a keyed hash of its secret, never the secret. `pepper` is the version of the hash key."""

    kind: ClassVar[str] = "api_key"
    table: ClassVar[Table] = Table.CONFIG
    native: ClassVar[tuple[str, ...]] = ("version",)

    id: KeyId
    name: str
    scope: KeyScope
    org: OrgId | None = None
    project: ProjectId | None = None
    digest: str
    pepper: int
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    rotated_to: KeyId | None = None
    """Set, once and for good, when another key was made to take its place."""
    version: int = 1

    @staticmethod
    def key_of(key: KeyId) -> Key:
        return Key(Table.CONFIG, f"KEY#{key}", "META")

    def key(self) -> Key:
        return self.key_of(self.id)


class ApiKeyEntry(Record):
    """A key's line in the list of its organization's keys (operators' keys under `operators`)."""

    kind: ClassVar[str] = "api_key_entry"
    table: ClassVar[Table] = Table.CONFIG

    id: KeyId
    org: OrgId

    @staticmethod
    def key_of(org: OrgId, key: KeyId) -> Key:
        return Key(Table.CONFIG, f"KEYS#{org}", key)

    def key(self) -> Key:
        return self.key_of(self.org, self.id)
