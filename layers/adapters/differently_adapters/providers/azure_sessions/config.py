"""What an Azure sessions pool is told."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from differently_core.model import features
from differently_core.model.record import camel

from ...http import Endpoint, EndpointRules, configured_endpoint

Url = Annotated[str, Field(min_length=8, max_length=2_048)]
Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]{0,127}$")]
Amount = Annotated[int, Field(ge=1)]


class AzureSessionsConfig(BaseModel):
    """The credential's one field is `client_secret`, of an application that may execute sessions of the pool."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=camel, populate_by_name=True)

    pool_url: Annotated[Url, Field(description="The session pool's management endpoint, from the Azure portal.")]
    tenant: Id
    """The directory of the application: its id or a domain of it."""
    client_id: Id
    """The id of the application."""
    cooldown_seconds: Annotated[int, Field(ge=60, le=86_400)]
    """What the session pool has: a session that is asked for nothing so long is gone."""
    authority_url: Url = "https://login.microsoftonline.com"
    """Where the application proves itself; another one in a national cloud."""
    api_version: Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(-preview)?$")] = "2025-02-02-preview"
    """The version of the session pool's interface that is spoken."""
    direct_seconds_max: Annotated[int, Field(ge=0, le=200)] = 120
    """Commands that may take longer are started as jobs: one call is ended after 220 seconds."""
    session_cpu_millis: Amount | None = None
    """Thousandths of a CPU that the session pool gives; sandboxes that ask for more are not placed here."""
    session_memory_mib: Amount | None = None
    """MiB of memory that the session pool gives."""
    session_disk_gib: Amount | None = None
    """GiB of disk that the session pool gives; sandboxes that ask for more are not placed here."""
    features: tuple[str, ...] = ()
    """What sessions have beyond that, such as `arch.amd64`."""
    allow_http: bool = False
    """Permits an address without TLS."""
    allow_private: bool = False
    """Permits an address of a private network."""
    allow_loopback: bool = False
    """Permits an address of the machine that the control plane runs on."""

    @field_validator("features")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(names) - features.KNOWN)
        if unknown:
            raise ValueError(f"unknown features: {', '.join(unknown)}")
        return names

    @model_validator(mode="after")
    def _addresses_are_permitted(self) -> Self:
        self.sessions()
        self.authority()
        return self

    def rules(self) -> EndpointRules:
        return EndpointRules(http=self.allow_http, private=self.allow_private, loopback=self.allow_loopback)

    def sessions(self) -> Endpoint:
        return configured_endpoint(self.pool_url, self.rules(), "config.poolUrl")

    def authority(self) -> Endpoint:
        return configured_endpoint(self.authority_url, self.rules(), "config.authorityUrl")
