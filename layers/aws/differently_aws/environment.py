"""What a function is told by its environment, read once for each container."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from differently_core.contract import Verification
from differently_core.model.policy import RETENTION_SECONDS_MAX, RETENTION_SECONDS_MIN
from differently_core.model.record import Table
from differently_core.runtime.origins import read_origins

_NAME = r"^[A-Za-z0-9_.:/-]+$"
Name = Annotated[str, Field(pattern=_NAME)]


class Misconfigured(Exception):
    """The deployment did not tell a function what it needs. Its text names the variable, never a value."""


class Environment(BaseModel):
    """Names of what is deployed beside the function; a part that it has no permission to use is not told to it."""

    model_config = ConfigDict(frozen=True)

    region: Annotated[Name, Field(alias="AWS_REGION")]
    config_table: Annotated[Name, Field(alias="CONFIG_TABLE")]
    state_table: Annotated[Name, Field(alias="STATE_TABLE")]
    log_table: Annotated[Name, Field(alias="LOG_TABLE")]
    version: Annotated[str, Field(alias="DIFFERENTLY_VERSION")]
    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], Field(alias="LOG_LEVEL")] = "INFO"
    metrics: Annotated[bool, Field(alias="METRICS")] = True
    worker: Annotated[Name | None, Field(alias="WORKER_FUNCTION")] = None
    reconcile: Annotated[Name | None, Field(alias="RECONCILE_FUNCTION")] = None
    dispatch_queue: Annotated[str | None, Field(alias="DISPATCH_QUEUE_URL", pattern=r"^https?://")] = None
    deliver_queue: Annotated[str | None, Field(alias="DELIVER_QUEUE_URL", pattern=r"^https?://")] = None
    event_bus: Annotated[Name | None, Field(alias="EVENT_BUS")] = None
    wait_machine: Annotated[Name | None, Field(alias="WAIT_MACHINE")] = None
    pepper_secret: Annotated[Name | None, Field(alias="PEPPER_SECRET")] = None
    secrets_key: Annotated[Name | None, Field(alias="SECRETS_KEY")] = None
    """The ARN of the key that seals secrets. A function that is told of none keeps and opens none."""
    archive_bucket: Annotated[Name | None, Field(alias="ARCHIVE_BUCKET")] = None
    staging_bucket: Annotated[Name | None, Field(alias="STAGING_BUCKET")] = None
    """Where large files lie on their way into a sandbox. A function that is told of none takes no uploads."""
    minimum_level: Annotated[Verification, Field(alias="ADAPTERS_MINIMUM_LEVEL")] = Verification.FAKE
    """Kinds of pools that were tested against less are refused."""
    retention_seconds: Annotated[int, Field(alias="RETENTION_SECONDS", ge=RETENTION_SECONDS_MIN)] = 30 * 86_400
    snapshot_retention_seconds: Annotated[int, Field(alias="SNAPSHOT_RETENTION_SECONDS", ge=RETENTION_SECONDS_MIN)] = (
        30 * 86_400
    )
    retention_seconds_max: Annotated[
        int, Field(alias="RETENTION_SECONDS_MAX", ge=RETENTION_SECONDS_MIN, le=RETENTION_SECONDS_MAX)
    ] = RETENTION_SECONDS_MAX
    allowed_origins: Annotated[frozenset[str], Field(alias="ALLOWED_ORIGINS")] = frozenset()
    """Web origins whose pages may read answers; told separated by spaces."""
    endpoint: Annotated[str | None, Field(alias="AWS_ENDPOINT_URL", pattern=r"^https?://")] = None
    """Set where AWS itself is emulated."""

    @field_validator("allowed_origins", mode="before")
    @classmethod
    def _origins(cls, text: object) -> object:
        return read_origins(text) if isinstance(text, str) else text

    @property
    def tables(self) -> Mapping[Table, str]:
        return {Table.CONFIG: self.config_table, Table.STATE: self.state_table, Table.LOG: self.log_table}


def read(environ: Mapping[str, str]) -> Environment:
    """Raises `Misconfigured` naming the first variable that is missing or wrong."""
    names = {str(field.alias) for field in Environment.model_fields.values()}
    given = {name: value for name, value in environ.items() if name in names and value != ""}
    try:
        return Environment.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    raise Misconfigured(f"{first['loc'][0]}: {first['msg']}; the deployment sets it")
