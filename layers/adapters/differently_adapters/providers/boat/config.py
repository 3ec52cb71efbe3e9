"""What a Boat pool is told."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from differently_core.errors import InvalidRequest
from differently_core.model import features
from differently_core.model.record import camel

from ...http import Endpoint, EndpointRules, parse_endpoint
from .names import SNAPSHOT_NAME

Amount = Annotated[int, Field(ge=1)]


class BoatConfig(BaseModel):
    """The credential's one field is `api_key`."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=camel, populate_by_name=True)

    api_url: Annotated[str, Field(min_length=8, max_length=2_048)] = "https://boat.dev/api/v1"
    org: Annotated[str, Field(pattern=r"^[\x21-\x7e]([\x20-\x7e]{0,126}[\x21-\x7e])?$")] = "personal"
    """Whose wallet pays, and whose machines are listed: an organization's id or name, or `personal`."""
    machine_type: Literal["small", "default", "large", "xlarge"] = "default"
    machine_cpu_millis: Amount | None = None
    machine_memory_mib: Amount | None = None
    machine_disk_gib: Amount | None = None
    """What a machine of that type has; sandboxes that ask for more are not placed here."""
    snapshot: Annotated[str, Field(pattern=SNAPSHOT_NAME)] | None = None
    """A saved snapshot for sandboxes that name no image; without one, Boat's own base."""
    fail_fast: bool = False
    """Refuse when no machine is ready at once, where Boat would otherwise build one."""
    features: tuple[str, ...] = ()
    """What the machines of this pool have beyond that, such as `arch.amd64`."""
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
        try:
            return parse_endpoint(self.api_url, self.rules())
        except InvalidRequest as error:
            error.details["field"] = "config.apiUrl"
            raise
