"""What a Boat pool is told."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from differently_core.errors import InvalidRequest

from ...configuration import ProviderConfig
from ...http import Endpoint, parse_endpoint
from .names import SNAPSHOT_NAME

Amount = Annotated[int, Field(ge=1)]


class BoatConfig(ProviderConfig):
    """The credential's one field is `api_key`."""

    api_url: Annotated[str, Field(min_length=8, max_length=2_048)] = "https://boat.dev/api/v1"
    """Where the API is."""
    org: Annotated[str, Field(pattern=r"^[\x21-\x7e]([\x20-\x7e]{0,126}[\x21-\x7e])?$")] = "personal"
    """Whose wallet pays, and whose machines are listed: an organization's id or name, or `personal`."""
    machine_type: Literal["small", "default", "large", "xlarge"] = "default"
    """The size of every machine of the pool."""
    machine_cpu_millis: Amount | None = None
    """What a machine of that type has; sandboxes that ask for more are not placed here."""
    machine_memory_mib: Amount | None = None
    """As for the CPU."""
    machine_disk_gib: Amount | None = None
    """As for the CPU."""
    snapshot: Annotated[str, Field(pattern=SNAPSHOT_NAME)] | None = None
    """A saved snapshot for sandboxes that name no image; without one, Boat's own base."""
    fail_fast: bool = False
    """Refuse when no machine is ready at once, where Boat would otherwise build one."""

    @model_validator(mode="after")
    def _address_is_permitted(self) -> Self:
        self.api()
        return self

    def api(self) -> Endpoint:
        try:
            return parse_endpoint(self.api_url, self.rules())
        except InvalidRequest as error:
            error.details["field"] = "config.apiUrl"
            raise
