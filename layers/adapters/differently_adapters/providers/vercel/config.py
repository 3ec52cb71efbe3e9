"""What a Vercel pool is told."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from ...configuration import ProviderConfig
from ...http import Endpoint, configured_endpoint

Name = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[\x21-\x7e]+$")]
Port = Annotated[int, Field(ge=1, le=65_535)]


class VercelConfig(ProviderConfig):
    """The credential's one field is `token`, an access token: the short-lived ones are minted at Vercel only."""

    team_id: Name
    """Whose project it is."""
    project_id: Name
    """Where sandboxes are made."""
    api_url: Annotated[str, Field(min_length=8, max_length=2_048)] = "https://vercel.com/api"
    """Where the API is."""
    region: Name | None = None
    """Where they run; by default Vercel's choice."""
    image: Name | None = None
    """For sandboxes that name none; by default Vercel's own."""
    vcpus_max: Annotated[int, Field(ge=1, le=64)] = 8
    """The largest sandbox of the plan."""
    timeout_seconds_max: Annotated[int, Field(ge=60, le=2_592_000)] = 2_700
    """The plan's longest session."""
    ports: Annotated[tuple[Port, ...], Field(max_length=16)] = ()
    """These can be exposed. Every sandbox of the pool has them open to the public while it runs."""

    @model_validator(mode="after")
    def _address_is_permitted(self) -> Self:
        self.api()
        return self

    def api(self) -> Endpoint:
        return configured_endpoint(self.api_url, self.rules(), "config.apiUrl")
