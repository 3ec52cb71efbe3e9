"""What an E2B pool is told."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from ...configuration import ProviderConfig
from ...http import Endpoint, configured_endpoint, parse_endpoint

SHARED_DOMAINS = frozenset({"e2b.app", "e2b.dev", "e2b.pro"})
"""Where one host serves every sandbox, told by headers which one is meant. Elsewhere each sandbox has a host."""
Url = Annotated[str, Field(min_length=8, max_length=2_048)]
Amount = Annotated[int, Field(ge=1)]


class E2bConfig(ProviderConfig):
    """The credential's one field is `api_key`."""

    domain: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")] = "e2b.app"
    """Where E2B is: its own, or that of a self-hosted one."""
    api_url: Annotated[Url | None, Field(description="By default https://api.<domain>.")] = None
    sandbox_url: Annotated[Url | None, Field(description="One address for the agents of all sandboxes.")] = None
    template: Annotated[str, Field(min_length=1, max_length=256)] = "base"
    """For sandboxes that name no image: an E2B template's id, alias, `team/alias` or `alias:tag`."""
    template_cpu_millis: Amount | None = None
    """What the templates of this pool have; sandboxes that ask for more are not placed here."""
    template_memory_mib: Amount | None = None
    """As for the CPU."""
    template_disk_gib: Amount | None = None
    """As for the CPU."""
    timeout_seconds_max: Annotated[int, Field(ge=60, le=2_592_000)] = 3_600
    """The longest life that the plan gives."""
    public_ports: bool = False
    """Let ports be exposed: then every port of every sandbox is open to whoever knows its address."""
    legacy_create: bool = False
    """For a self-hosted E2B without `/v2/sandboxes`: creates are not idempotent there."""

    @model_validator(mode="after")
    def _addresses_are_permitted(self) -> Self:
        self.api()
        self.agent("any", self.domain, 1)
        return self

    def api(self) -> Endpoint:
        field = "config.apiUrl" if self.api_url else "config.domain"
        return configured_endpoint(self.api_url or f"https://api.{self.domain}", self.rules(), field)

    def agent(self, ref: str, domain: str, port: int) -> Endpoint:
        """Where a sandbox's agent is reached."""
        if self.sandbox_url is not None:
            return configured_endpoint(self.sandbox_url, self.rules(), "config.sandboxUrl")
        if domain in SHARED_DOMAINS:
            return parse_endpoint(f"https://sandbox.{domain}", self.rules())
        return parse_endpoint(self.port_url(ref, domain, port), self.rules())

    def port_url(self, ref: str, domain: str, port: int) -> str:
        return f"https://{port}-{ref}.{domain}"
