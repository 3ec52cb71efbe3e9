"""What a Vercel pool is told."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from differently_core.model import features
from differently_core.model.record import camel

from ...http import Endpoint, EndpointRules, configured_endpoint

Name = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[\x21-\x7e]+$")]
Port = Annotated[int, Field(ge=1, le=65_535)]


class VercelConfig(BaseModel):
    """The credential's one field is `token`, an access token: the short-lived ones are minted at Vercel only."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=camel, populate_by_name=True)

    team_id: Name
    project_id: Name
    api_url: Annotated[str, Field(min_length=8, max_length=2_048)] = "https://vercel.com/api"
    region: Name | None = None
    image: Name | None = None
    """For sandboxes that name none; by default Vercel's own."""
    vcpus_max: Annotated[int, Field(ge=1, le=64)] = 8
    timeout_seconds_max: Annotated[int, Field(ge=60, le=2_592_000)] = 2_700
    """The plan's longest session."""
    ports: Annotated[tuple[Port, ...], Field(max_length=16)] = ()
    """These can be exposed. Every sandbox of the pool has them open to the public while it runs."""
    features: tuple[str, ...] = ()
    """What the sandboxes have beyond that, such as `arch.amd64`."""
    allow_http: bool = False
    allow_private: bool = False
    allow_loopback: bool = False

    @field_validator("features")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(names) - features.KNOWN)
        if unknown:
            raise ValueError(f"unknown features: {', '.join(unknown)}")
        return names

    @model_validator(mode="after")
    def _address_is_permitted(self) -> Self:
        self.api()
        return self

    def rules(self) -> EndpointRules:
        return EndpointRules(http=self.allow_http, private=self.allow_private, loopback=self.allow_loopback)

    def api(self) -> Endpoint:
        return configured_endpoint(self.api_url, self.rules(), "config.apiUrl")
