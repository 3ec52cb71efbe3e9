"""What a Northflank pool is told."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from differently_core.errors import InvalidRequest
from differently_core.model import features
from differently_core.model.record import camel
from differently_core.model.resources import Size

from ...http import Endpoint, EndpointRules, parse_endpoint

Slug = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,98}[a-z0-9])?$")]
Name = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[\x21-\x7e]+$")]


class Plan(BaseModel):
    """A deployment plan by its id, and what it gives."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=camel, populate_by_name=True)

    name: Slug
    cpu_millis: Annotated[int, Field(ge=1, le=1_000_000)]
    memory_mib: Annotated[int, Field(ge=1, le=4_194_304)]


class NorthflankConfig(BaseModel):
    """The credential's one field is `token`: an API token that may read, create, delete and run commands there."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=camel, populate_by_name=True)

    project: Slug
    """By its id. Give the pool one of its own: its lists cannot be filtered."""
    team: Slug | None = None
    """For a token of an organization: the team that the project belongs to."""
    api_url: Annotated[str, Field(min_length=8, max_length=2_048)] = "https://api.northflank.com/v1"
    image: Name | None = None
    """For sandboxes that name none."""
    command: Annotated[str, Field(min_length=1, max_length=1_024)] = "sleep infinity"
    """What keeps a container alive."""
    plans: Annotated[tuple[Plan, ...], Field(min_length=1, max_length=64)]
    """A sandbox gets the smallest that holds it."""
    ephemeral_storage_mib: Annotated[int, Field(ge=1_024, le=1_048_576)] | None = None
    """The disk of each sandbox; by default what the plan gives, and then sandboxes that ask for more are not seen."""
    features: tuple[str, ...] = ()
    """What the services have beyond that, such as `arch.amd64` or `isolation.microvm`."""
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

    def plan_for(self, size: Size) -> Plan:
        """Raises `InvalidRequest` when none is large enough."""
        fitting = [p for p in self.plans if p.cpu_millis >= size.cpu_millis and p.memory_mib >= size.memory_mib]
        if not fitting:
            raise InvalidRequest("No plan of the Northflank pool is large enough for the sandbox.", field="resources")
        return min(fitting, key=lambda plan: (plan.cpu_millis, plan.memory_mib, plan.name))
