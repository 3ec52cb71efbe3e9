"""Secrets as they are kept: credentials of providers, secrets of projects, and those that a sandbox was given."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from ..runtime.ids import OrgId, ProjectId, SandboxId
from .record import Key, Record, Table

SECRET_NAME_PATTERN = r"^[a-z][a-z0-9-]{0,62}$"
STORED = "secret:"
"""How a pool refers to a stored secret: this, and its name."""
BOUND_MAX = 48
"""Secrets that one sandbox was given or may have traces of: they fit in one row."""
POOLS_MAX = 50
"""Of one secret: they all take up a new revision in one transaction."""


class Secret(Record):
    """What may be told. `revision` names the sealed fields that are in force; `version` counts the replacements.

    `users` is how many pools refer to it, and `moves` rises with each that begins or ends to. They change in the same
    transaction as the pool, so that a secret in use is not removed and a new revision reaches every pool that uses it.
    """

    kind: ClassVar[str] = "secret"
    table: ClassVar[Table] = Table.CONFIG
    native: ClassVar[tuple[str, ...]] = ("version", "revision", "users", "moves")

    name: str
    revision: str
    version: int = 1
    fields: tuple[str, ...]
    users: int = 0
    moves: int = 0
    created_at: datetime
    updated_at: datetime
    updated_by: str

    @staticmethod
    def key_of(name: str) -> Key:
        return Key(Table.CONFIG, "SECRETS", name)

    def key(self) -> Key:
        return self.key_of(self.name)


class SealedFields(Record):
    """One revision: each field sealed by itself. Written once, read when an adapter is built, gone when replaced."""

    kind: ClassVar[str] = "sealed_fields"
    table: ClassVar[Table] = Table.CONFIG

    name: str
    revision: str
    fields: dict[str, str]

    @staticmethod
    def key_of(name: str, revision: str) -> Key:
        return Key(Table.CONFIG, f"SECRET#{name}", revision)

    def key(self) -> Key:
        return self.key_of(self.name, self.revision)


class ProjectSecret(Record):
    """A secret that the sandboxes of a project may be given. `sealed` opens under its project, name and revision."""

    kind: ClassVar[str] = "project_secret"
    table: ClassVar[Table] = Table.CONFIG
    native: ClassVar[tuple[str, ...]] = ("version",)

    project: ProjectId
    org: OrgId
    name: str
    revision: str
    version: int = 1
    sealed: str
    created_at: datetime
    updated_at: datetime
    updated_by: str

    @staticmethod
    def key_of(project: ProjectId, name: str) -> Key:
        return Key(Table.CONFIG, f"PROJECT#{project}", f"SECRET#{name}")

    def key(self) -> Key:
        return self.key_of(self.project, self.name)


class BoundSecret(BaseModel):
    """As it was when the sandbox was created: a replacement of the secret does not reach it.

    Without `env` it is given to nothing: what the sandbox was made from had it, so traces of it are masked here too.
    """

    model_config = ConfigDict(frozen=True)

    env: str | None = None
    secret: str
    revision: str
    sealed: str


class SandboxSecrets(Record):
    """What a sandbox was given, still sealed. It goes when the sandbox ends."""

    kind: ClassVar[str] = "sandbox_secrets"
    table: ClassVar[Table] = Table.STATE

    id: SandboxId
    project: ProjectId
    bound: tuple[BoundSecret, ...]

    @staticmethod
    def key_of(sandbox: SandboxId) -> Key:
        return Key(Table.STATE, f"SBX#{sandbox}", "SECRETS")

    def key(self) -> Key:
        return self.key_of(self.id)
