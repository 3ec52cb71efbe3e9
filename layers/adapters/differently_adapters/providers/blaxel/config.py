"""What a Blaxel pool is told."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from ...configuration import ProviderConfig
from ...http import Endpoint, configured_endpoint

Name = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[\x21-\x7e]+$")]


class BlaxelConfig(ProviderConfig):
    """The credential's one field is `api_key`."""

    workspace: Name
    """Where sandboxes are made."""
    region: Name
    """Where they run."""
    api_url: Annotated[str, Field(min_length=8, max_length=2_048)] = "https://api.blaxel.ai/v0"
    """Where the API is."""
    image: Name = "blaxel/base-image:latest"
    """For sandboxes that name none."""
    memory_mib_max: Annotated[int, Field(ge=512, le=1_048_576)] = 8_192
    """The largest sandbox of the plan."""

    @model_validator(mode="after")
    def _address_is_permitted(self) -> Self:
        self.api()
        return self

    def api(self) -> Endpoint:
        return configured_endpoint(self.api_url, self.rules(), "config.apiUrl")
