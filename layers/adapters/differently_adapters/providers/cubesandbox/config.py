"""What a CubeSandbox pool is told."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ...configuration import ProviderConfig
from ...http import Endpoint, configured_endpoint, parse_endpoint

Url = Annotated[str, Field(min_length=8, max_length=2_048)]
Amount = Annotated[int, Field(ge=1)]


class CubeSandboxConfig(ProviderConfig):
    """The credential's one field is `api_key`, where the installation asks for one."""

    api_url: Annotated[Url, Field(description="CubeAPI, such as https://cube.example.com:3000.")]
    template: Annotated[str, Field(min_length=1, max_length=256)]
    """For sandboxes that name no image: a template's id or alias."""
    domain: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")] = "cube.app"
    """Under which each port of each sandbox has a host, `<port>-<id>.<domain>`."""
    scheme: Literal["http", "https"] = "http"
    """How these hosts are reached. CubeProxy itself speaks HTTP; `https` needs something before it."""
    proxy_url: Annotated[Url | None, Field(description="CubeProxy's address, where its hosts have no names.")] = None
    user: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")] = "root"
    """The Linux user of commands and files."""
    template_cpu_millis: Amount | None = None
    """What the templates of this pool have; sandboxes that ask for more are not placed here."""
    template_memory_mib: Amount | None = None
    """As for the CPU."""
    template_disk_gib: Amount | None = None
    """As for the CPU."""
    nodes_max: Annotated[int, Field(ge=1, le=10_000)] = 1_000
    """More than the cluster has: a list covers so many nodes."""
    public_ports: bool = False
    """Tell addresses of ports; the ports are open at the proxy whatever this says."""
    legacy: bool = False
    """For a CubeSandbox before 0.7, whose snapshots cannot be listed."""

    @model_validator(mode="after")
    def _addresses_are_permitted(self) -> Self:
        self.api()
        self.proxy("any", 1)
        return self

    def api(self) -> Endpoint:
        return configured_endpoint(self.api_url, self.rules(), "config.apiUrl")

    def host(self, ref: str, port: int) -> str:
        return f"{port}-{ref}.{self.domain}"

    def port_url(self, ref: str, port: int) -> str:
        return f"{self.scheme}://{self.host(ref, port)}"

    def proxy(self, ref: str, port: int) -> Endpoint:
        """Where a port of a sandbox is reached; with `proxy_url` the host must be named by a header."""
        if self.proxy_url is not None:
            return configured_endpoint(self.proxy_url, self.rules(), "config.proxyUrl")
        return parse_endpoint(self.port_url(ref, port), self.rules())
