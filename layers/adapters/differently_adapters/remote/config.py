"""What an operator configures for a pool behind a plugin."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from ..configuration import ReachingConfig
from ..http import Endpoint, parse_endpoint
from ..jobs import DIRECTORY


class RemoteConfig(ReachingConfig):
    """The credential's one field is `token`, the plugin's bearer token."""

    endpoint: Annotated[str, Field(description="Base URL of the plugin; /adapter/v1 is added to it.")]
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

    def parsed(self) -> Endpoint:
        return parse_endpoint(self.endpoint, self.rules())
