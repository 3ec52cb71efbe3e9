"""What a Blaxel pool is told."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from differently_core.model import features
from differently_core.model.record import camel

from ...http import Endpoint, EndpointRules, configured_endpoint

Name = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[\x21-\x7e]+$")]


class BlaxelConfig(BaseModel):
    """The credential's one field is `api_key`."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=camel, populate_by_name=True)

    workspace: Name
    region: Name
    api_url: Annotated[str, Field(min_length=8, max_length=2_048)] = "https://api.blaxel.ai/v0"
    image: Name = "blaxel/base-image:latest"
    """For sandboxes that name none."""
    memory_mib_max: Annotated[int, Field(ge=512, le=1_048_576)] = 8_192
    """The largest sandbox of the plan."""
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
