"""What a Fly pool is told."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ...configuration import ProviderConfig
from ...http import Endpoint, configured_endpoint

Name = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[\x21-\x7e]+$")]


class FlyConfig(ProviderConfig):
    """The credential's one field is `token`: a deploy token of the app, or one of the organization."""

    app: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
    """Every machine belongs to an app. Give the pool one of its own."""
    api_url: Annotated[str, Field(min_length=8, max_length=2_048)] = "https://api.machines.dev/v1"
    """Where the Machines API is."""
    region: Name | None = None
    """Where machines run; by default Fly's choice."""
    image: Name | None = None
    """For sandboxes that name none."""
    init: Annotated[tuple[Name, ...], Field(min_length=1, max_length=64)] = ("/bin/sleep", "inf")
    """What keeps a machine alive."""
    cpu_kind: Literal["shared", "performance"] = "shared"
    """Of every machine of the pool."""
    cpus_max: Annotated[int, Field(ge=1, le=64)] = 8
    """The largest machine that the plan gives."""
    memory_mib_max: Annotated[int, Field(ge=256, le=262_144)] = 16_384
    """As for the CPU."""
    direct_seconds_max: Annotated[int, Field(ge=0, le=60)] = 20
    """Commands that may take longer are started as jobs: Fly was seen to give up on calls of 30 seconds."""

    @model_validator(mode="after")
    def _address_is_permitted(self) -> Self:
        self.api()
        return self

    def api(self) -> Endpoint:
        return configured_endpoint(self.api_url, self.rules(), "config.apiUrl")
