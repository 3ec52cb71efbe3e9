"""What an operator configures for a pool behind a plugin."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from differently_core.model.record import camel

from ..http import Endpoint, EndpointRules, parse_endpoint
from ..jobs import DIRECTORY


class RemoteConfig(BaseModel):
    """The credential's one field is `token`, the plugin's bearer token."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=camel, populate_by_name=True)

    endpoint: Annotated[str, Field(description="Base URL of the plugin; /adapter/v1 is added to it.")]
    allow_http: Annotated[bool, Field(description="Permit plain http.")] = False
    allow_private: Annotated[bool, Field(description="Permit addresses of private networks.")] = False
    allow_loopback: Annotated[bool, Field(description="Permit this machine, for development.")] = False
    authorities: Annotated[
        str | None, Field(max_length=262_144, description="PEM: trust only these certificate authorities.")
    ] = None
    create_seconds: Annotated[
        float, Field(ge=1, le=850, description="Deadline of a create, where the plugin does not tell its own.")
    ] = 120.0
    settles_seconds: Annotated[
        float, Field(ge=0, le=3_600, description="How late an instance may turn up, where the plugin does not tell.")
    ] = 180.0
    jobs_directory: Annotated[
        str, Field(min_length=1, max_length=1_024, description="Where jobs are kept if the plugin has none itself.")
    ] = DIRECTORY

    @model_validator(mode="after")
    def _endpoint_is_permitted(self) -> Self:
        self.parsed()
        return self

    def rules(self) -> EndpointRules:
        return EndpointRules(http=self.allow_http, private=self.allow_private, loopback=self.allow_loopback)

    def parsed(self) -> Endpoint:
        return parse_endpoint(self.endpoint, self.rules())
