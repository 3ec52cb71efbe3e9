"""What `make run` is told, by environment variables. Everything has a default."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from differently_core.model.policy import RETENTION_SECONDS_MAX, RETENTION_SECONDS_MIN
from differently_core.runtime.origins import read_origins

from .failure import StartFailure

CHECKOUT = Path(__file__).resolve().parents[2]


class Settings(BaseModel):
    """`PORT=0` takes any free port."""

    model_config = ConfigDict(frozen=True)

    host: Annotated[str, Field(alias="HOST")] = "127.0.0.1"
    port: Annotated[int, Field(alias="PORT", ge=0, le=65535)] = 8080
    data_dir: Annotated[Path, Field(alias="DIFFERENTLY_DATA_DIR")] = CHECKOUT / ".differently"
    emulator_python: Annotated[Path, Field(alias="DIFFERENTLY_EMULATOR_PYTHON")] = (
        CHECKOUT / ".venv-emulator" / "bin" / "python"
    )
    retention_seconds: Annotated[int, Field(alias="RETENTION_SECONDS", ge=RETENTION_SECONDS_MIN)] = 30 * 86_400
    snapshot_retention_seconds: Annotated[int, Field(alias="SNAPSHOT_RETENTION_SECONDS", ge=RETENTION_SECONDS_MIN)] = (
        30 * 86_400
    )
    retention_seconds_max: Annotated[
        int, Field(alias="RETENTION_SECONDS_MAX", ge=RETENTION_SECONDS_MIN, le=RETENTION_SECONDS_MAX)
    ] = RETENTION_SECONDS_MAX
    allowed_origins: Annotated[frozenset[str], Field(alias="ALLOWED_ORIGINS")] = frozenset()
    config: Annotated[Path | None, Field(alias="DIFFERENTLY_CONFIG")] = None
    """A configuration file as a deployment's, of which pools, templates, policies and quotas are read."""
    webhooks_loopback: Annotated[bool, Field(alias="WEBHOOKS_ALLOW_LOOPBACK")] = False
    log_format: Annotated[Literal["text", "json"], Field(alias="LOG_FORMAT")] = "text"
    log_level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], Field(alias="LOG_LEVEL")] = "INFO"

    @field_validator("host")
    @classmethod
    def _loopback(cls, host: str) -> str:
        address = "127.0.0.1" if host == "localhost" else host
        try:
            loopback = ipaddress.ip_address(address).is_loopback
        except ValueError:
            loopback = False
        if not loopback:
            raise ValueError(
                "must be a loopback address such as 127.0.0.1: sandboxes run real commands on this machine without "
                "any isolation, so nobody else may reach it"
            )
        return address

    @field_validator("allowed_origins", mode="before")
    @classmethod
    def _origins(cls, text: object) -> object:
        return read_origins(text) if isinstance(text, str) else text

    @field_validator("data_dir")
    @classmethod
    def _absolute(cls, path: Path) -> Path:
        return path.resolve()


def read(environ: Mapping[str, str]) -> Settings:
    """Raises `StartFailure` naming the variable."""
    names = {str(field.alias) for field in Settings.model_fields.values()}
    given = {name: value for name, value in environ.items() if name in names and value != ""}
    try:
        return Settings.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    name = str(first["loc"][0])
    raise StartFailure(f"{name}={given[name]}: {first['msg'].removeprefix('Value error, ')}.")
