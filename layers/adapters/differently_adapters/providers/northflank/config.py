"""What a Northflank pool is told."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from differently_core.errors import InvalidRequest
from differently_core.model.record import camel
from differently_core.model.resources import Size

from ...configuration import ProviderConfig
from ...http import Endpoint, parse_endpoint

Slug = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,98}[a-z0-9])?$")]
Name = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[\x21-\x7e]+$")]


class Plan(BaseModel):
    """A deployment plan by its id, and what it gives."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=camel, populate_by_name=True)

    name: Slug
    """The plan's id at Northflank."""
    cpu_millis: Annotated[int, Field(ge=1, le=1_000_000)]
    """What it gives."""
    memory_mib: Annotated[int, Field(ge=1, le=4_194_304)]
    """As for the CPU."""


class NorthflankConfig(ProviderConfig):
    """The credential's one field is `token`: an API token that may read, create, delete and run commands there."""

    project: Slug
    """By its id. Give the pool one of its own: its lists cannot be filtered."""
    team: Slug | None = None
    """For a token of an organization: the team that the project belongs to."""
    api_url: Annotated[str, Field(min_length=8, max_length=2_048)] = "https://api.northflank.com/v1"
    """Where the API is."""
    image: Name | None = None
    """For sandboxes that name none."""
    command: Annotated[str, Field(min_length=1, max_length=1_024)] = "sleep infinity"
    """What keeps a container alive."""
    plans: Annotated[tuple[Plan, ...], Field(min_length=1, max_length=64)]
    """A sandbox gets the smallest that holds it."""
    ephemeral_storage_mib: Annotated[int, Field(ge=1_024, le=1_048_576)] | None = None
    """The disk of each sandbox; by default what the plan gives, and then sandboxes that ask for more are not seen."""

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

    def plan_for(self, size: Size) -> Plan:
        """Raises `InvalidRequest` when none is large enough."""
        fitting = [p for p in self.plans if p.cpu_millis >= size.cpu_millis and p.memory_mib >= size.memory_mib]
        if not fitting:
            raise InvalidRequest("No plan of the Northflank pool is large enough for the sandbox.", field="resources")
        return min(fitting, key=lambda plan: (plan.cpu_millis, plan.memory_mib, plan.name))
