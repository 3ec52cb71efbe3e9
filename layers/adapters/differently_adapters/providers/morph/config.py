"""What a Morph pool is told."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from differently_core.model import features
from differently_core.model.record import camel

from ...http import Endpoint, EndpointRules, configured_endpoint

Amount = Annotated[int, Field(ge=1)]


class MorphConfig(BaseModel):
    """The credential's one field is `api_key`."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=camel, populate_by_name=True)

    api_url: Annotated[str, Field(min_length=8, max_length=2_048)] = "https://cloud.morph.so/api"
    snapshot: Annotated[str, Field(min_length=1, max_length=256)]
    """For sandboxes that name no image: the id of a snapshot of yours."""
    snapshot_cpu_millis: Amount | None = None
    snapshot_memory_mib: Amount | None = None
    snapshot_disk_gib: Amount | None = None
    """What the snapshots of this pool have; sandboxes that ask for more are not placed here."""
    public_ports: bool = False
    """Let ports be exposed, each to whoever knows its address."""
    features: tuple[str, ...] = ()
    """What the snapshots of this pool have beyond that, such as `arch.amd64`."""
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
