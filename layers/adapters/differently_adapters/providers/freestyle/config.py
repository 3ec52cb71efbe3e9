"""What a Freestyle pool is told."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ...configuration import ProviderConfig
from ...http import Endpoint, configured_endpoint

Amount = Annotated[int, Field(ge=1)]


class FreestyleConfig(ProviderConfig):
    """The credential's one field is `api_key`."""

    api_url: Annotated[str, Field(min_length=8, max_length=2_048)] = "https://api.freestyle.sh"
    """Where the API is."""
    snapshot: Annotated[str, Field(min_length=1, max_length=256)] = "freestyle/ubuntu-sm"
    """For sandboxes that name no image: a snapshot of the catalogue, or one of yours."""
    snapshot_cpu_millis: Amount | None = None
    """What the snapshots of this pool have; sandboxes that ask for more are not placed here."""
    snapshot_memory_mib: Amount | None = None
    """As for the CPU."""
    snapshot_disk_gib: Amount | None = None
    """As for the CPU."""
    linux_user: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")] | None = None
    """Whose commands they are; by default Freestyle's own choice, user 1000 where there is one."""
    egress: Literal["none", "public"] = "none"
    """`none`: a sandbox reaches nothing. `public`: it reaches the internet, and no other VM of the account."""
    public_ports: bool = False
    """Let ports be exposed, each to whoever knows its address."""
    port_domain: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")] = "style.dev"
    """Under which ports are exposed."""

    @model_validator(mode="after")
    def _address_is_permitted(self) -> Self:
        self.api()
        return self

    def api(self) -> Endpoint:
        return configured_endpoint(self.api_url, self.rules(), "config.apiUrl")
