"""What a Daytona pool is told."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ...configuration import ProviderConfig
from ...http import Endpoint, configured_endpoint

Name = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[\x21-\x7e]+$")]
Amount = Annotated[int, Field(ge=1)]


class DaytonaConfig(ProviderConfig):
    """The credential's one field is `api_key`."""

    api_url: Annotated[str, Field(min_length=8, max_length=2_048)] = "https://app.daytona.io/api"
    """Where the API is."""
    organization_id: Name | None = None
    """Needed where the key is a token of a person, who may be in several organizations."""
    target: Name | None = None
    """The region; by default the organization's."""
    snapshot: Name | None = None
    """For sandboxes that name no image; by default Daytona's own."""
    snapshot_cpu_millis: Amount | None = None
    """The largest sandbox that the pool takes, which a pool of one snapshot sets to the snapshot's size."""
    snapshot_memory_mib: Amount | None = None
    """As for the CPU."""
    snapshot_disk_gib: Amount | None = None
    """As for the CPU."""
    isolation: Literal["container", "microvm"] = "container"
    """As the class of the pool's snapshots gives it; reported, not checked."""
    create_seconds: Annotated[int, Field(ge=30, le=800)] = 300
    """How long a create may take; one from a new image builds a snapshot first."""
    lifetime_seconds_max: Annotated[int, Field(ge=60, le=31_536_000)] = 2_592_000
    """The longest life that is asked for; an organization may have a limit of its own."""

    @model_validator(mode="after")
    def _address_is_permitted(self) -> Self:
        self.api()
        return self

    def api(self) -> Endpoint:
        return configured_endpoint(self.api_url, self.rules(), "config.apiUrl")
