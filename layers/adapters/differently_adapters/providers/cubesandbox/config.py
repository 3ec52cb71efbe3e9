"""What a CubeSandbox pool is told."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from differently_core.model import features
from differently_core.model.record import camel

from ...http import Endpoint, EndpointRules, configured_endpoint, parse_endpoint

Url = Annotated[str, Field(min_length=8, max_length=2_048)]
Amount = Annotated[int, Field(ge=1)]


class CubeSandboxConfig(BaseModel):
    """The credential's one field is `api_key`, where the installation asks for one."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=camel, populate_by_name=True)

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
    """Thousandths of a CPU of the templates of this pool; sandboxes that ask for more are not placed here."""
    template_memory_mib: Amount | None = None
    """MiB of memory of the templates of this pool."""
    template_disk_gib: Amount | None = None
    """GiB of disk of the templates of this pool; sandboxes that ask for more are not placed here."""
    nodes_max: Annotated[int, Field(ge=1, le=10_000)] = 1_000
    """More than the cluster has: a list covers so many nodes."""
    public_ports: bool = False
    """Tell addresses of ports; the ports are open at the proxy whatever this says."""
    legacy: bool = False
    """For a CubeSandbox before 0.7, whose snapshots cannot be listed."""
    features: tuple[str, ...] = ()
    """What the templates of this pool have beyond that, such as `arch.amd64`."""
    allow_http: bool = False
    """Permits an address without TLS."""
    allow_private: bool = False
    """Permits an address of a private network."""
    allow_loopback: bool = False
    """Permits an address of the machine that the control plane runs on."""

    @field_validator("features")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(names) - features.KNOWN)
        if unknown:
            raise ValueError(f"unknown features: {', '.join(unknown)}")
        return names

    @model_validator(mode="after")
    def _addresses_are_permitted(self) -> Self:
        self.api()
        self.proxy("any", 1)
        return self

    def rules(self) -> EndpointRules:
        return EndpointRules(http=self.allow_http, private=self.allow_private, loopback=self.allow_loopback)

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
