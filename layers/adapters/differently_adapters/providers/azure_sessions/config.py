"""What an Azure sessions pool is told."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from ...configuration import ProviderConfig
from ...http import Endpoint, configured_endpoint

Url = Annotated[str, Field(min_length=8, max_length=2_048)]
Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]{0,127}$")]
Amount = Annotated[int, Field(ge=1)]


class AzureSessionsConfig(ProviderConfig):
    """The credential's one field is `client_secret`, of an application that may execute sessions of the pool."""

    pool_url: Annotated[Url, Field(description="The session pool's management endpoint, from the Azure portal.")]
    tenant: Id
    """The directory of the application: its id or a domain of it."""
    client_id: Id
    """The application whose secret the credential holds."""
    cooldown_seconds: Annotated[int, Field(ge=60, le=86_400)]
    """What the session pool has: a session that is asked for nothing so long is gone."""
    authority_url: Url = "https://login.microsoftonline.com"
    """Where tokens are had; another one in a national cloud."""
    api_version: Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}(-preview)?$")] = "2025-02-02-preview"
    """Of the sessions API."""
    direct_seconds_max: Annotated[int, Field(ge=0, le=200)] = 120
    """Commands that may take longer are started as jobs: one call is ended after 220 seconds."""
    session_cpu_millis: Amount | None = None
    """What the session pool gives; sandboxes that ask for more are not placed here."""
    session_memory_mib: Amount | None = None
    """As for the CPU."""
    session_disk_gib: Amount | None = None
    """As for the CPU."""

    @model_validator(mode="after")
    def _addresses_are_permitted(self) -> Self:
        self.sessions()
        self.authority()
        return self

    def sessions(self) -> Endpoint:
        return configured_endpoint(self.pool_url, self.rules(), "config.poolUrl")

    def authority(self) -> Endpoint:
        return configured_endpoint(self.authority_url, self.rules(), "config.authorityUrl")
