"""What a Fly pool is told."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from differently_core.model import features
from differently_core.model.record import camel

from ...http import Endpoint, EndpointRules, configured_endpoint

Name = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[\x21-\x7e]+$")]


class FlyConfig(BaseModel):
    """The credential's one field is `token`: a deploy token of the app, or one of the organization."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=camel, populate_by_name=True)

    app: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
    """Every machine belongs to an app. Give the pool one of its own."""
    api_url: Annotated[str, Field(min_length=8, max_length=2_048)] = "https://api.machines.dev/v1"
    region: Name | None = None
    image: Name | None = None
    """For sandboxes that name none."""
    init: Annotated[tuple[Name, ...], Field(min_length=1, max_length=64)] = ("/bin/sleep", "inf")
    """What keeps a machine alive."""
    cpu_kind: Literal["shared", "performance"] = "shared"
    cpus_max: Annotated[int, Field(ge=1, le=64)] = 8
    memory_mib_max: Annotated[int, Field(ge=256, le=262_144)] = 16_384
    """The largest machine that the plan gives."""
    direct_seconds_max: Annotated[int, Field(ge=0, le=60)] = 20
    """Commands that may take longer are started as jobs: Fly was seen to give up on calls of 30 seconds."""
    features: tuple[str, ...] = ()
    """What the machines have beyond that, such as `arch.amd64`."""
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
