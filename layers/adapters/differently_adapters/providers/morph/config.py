"""What a Morph pool is told."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from ...configuration import ProviderConfig
from ...http import Endpoint, configured_endpoint

Amount = Annotated[int, Field(ge=1)]


class MorphConfig(ProviderConfig):
    """The credential's one field is `api_key`."""

    api_url: Annotated[str, Field(min_length=8, max_length=2_048)] = "https://cloud.morph.so/api"
    """Where the API is."""
    snapshot: Annotated[str, Field(min_length=1, max_length=256)]
    """For sandboxes that name no image: the id of a snapshot of yours."""
    snapshot_cpu_millis: Amount | None = None
    """What the snapshots of this pool have; sandboxes that ask for more are not placed here."""
    snapshot_memory_mib: Amount | None = None
    """As for the CPU."""
    snapshot_disk_gib: Amount | None = None
    """As for the CPU."""
    public_ports: bool = False
    """Let ports be exposed, each to whoever knows its address."""

    @model_validator(mode="after")
    def _address_is_permitted(self) -> Self:
        self.api()
        return self

    def api(self) -> Endpoint:
        return configured_endpoint(self.api_url, self.rules(), "config.apiUrl")
