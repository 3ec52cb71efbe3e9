"""What an OpenSandbox pool is told."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from differently_core.errors import InvalidRequest

from ...configuration import ProviderConfig
from ...execd import LineEndings
from ...http import Endpoint, parse_endpoint
from ...peers import told_apart

Name = Annotated[str, Field(min_length=1, max_length=512)]
Target = Annotated[str, Field(pattern=r"^[A-Za-z0-9*][A-Za-z0-9.:/*-]{0,252}$")]


class Runtime(StrEnum):
    DOCKER = "docker"
    """Pause freezes the container and keeps its memory."""
    KUBERNETES = "kubernetes"
    """What OpenSandbox calls pause commits the disk and frees the pod: a stop."""


class Egress(StrEnum):
    """What sandboxes of the pool may reach."""

    OPEN = "open"
    """Whatever the network lets them; no rules are sent."""
    RULES = "rules"
    """What each sandbox is given as its rules, or everything."""
    NONE = "none"
    ALLOWLIST = "allowlist"
    """What `egressAllow` names."""


class OpenSandboxConfig(ProviderConfig):
    """`apiUrl` is the lifecycle server, with or without `/v1`. The credential's `api_key` is its API key."""

    api_url: Annotated[str, Field(min_length=8, max_length=2048)]
    """The lifecycle server, with or without `/v1`."""
    runtime: Runtime
    """As the server is set up: on kubernetes a pause is a stop, which keeps the disk alone."""
    image: Name | None = None
    """For sandboxes that name none."""
    entrypoint: Annotated[tuple[Name, ...], Field(min_length=1, max_length=64)] = ("tail", "-f", "/dev/null")
    """What keeps a sandbox alive."""
    template_id: Name | None = None
    """Every sandbox is made from this OpenSandbox template; images and create-time environments are refused."""
    pool_ref: Name | None = None
    """Sandboxes are taken from this pool of warm pods; `*` is any."""
    pool_cpu_millis: Annotated[int, Field(ge=1)] | None = None
    """Of one pod of the pool, which OpenSandbox does not tell: free pods become free room."""
    pool_memory_mib: Annotated[int, Field(ge=1)] | None = None
    """As for the CPU."""
    isolation: Literal["container", "microvm"] = "container"
    """As the operator set the runtime up; reported, not checked."""
    use_server_proxy: bool = False
    """Reach execd through the lifecycle server instead of directly."""
    execd_scheme: Literal["http", "https"] | None = None
    """Of direct endpoints, which are told without one; by default as `apiUrl`."""
    line_endings: LineEndings = LineEndings.EXACT
    """`exact`: output goes through files in the sandbox and arrives byte for byte. `restored`: cheaper, each line gets
    a newline again. `kept`: for an execd that keeps line ends itself."""
    ports: Literal["none", "signed"] = "none"
    """`signed`: ports are handed out as signed, expiring addresses of the ingress gateway."""
    port_scheme: Literal["http", "https"] = "https"
    """How the ingress gateway is reached from outside."""
    port_url_seconds: Annotated[int, Field(ge=60, le=86_400)] = 3600
    """The longest life of a port's address. Its signature has 32 bits, so keep it short."""
    egress: Egress = Egress.OPEN
    """Enforced by OpenSandbox's sidecar, and checked in every sandbox."""
    egress_allow: Annotated[tuple[Target, ...], Field(max_length=256)] = ()
    """Names such as `files.example.org` and `*.example.com`, addresses and CIDR blocks."""
    egress_probe: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]{1,253}:[0-9]{1,5}$")] = "1.1.1.1:443"
    """An address that nobody allows: a sandbox that reaches it shows that the rules have no effect."""
    create_seconds: Annotated[int, Field(ge=5, le=600)] = 60
    """The server's `sandbox_create_timeout_seconds`: how long one of its creates may take."""
    timeout_seconds_max: Annotated[int, Field(ge=60)] = 86_400
    """The longest timeout that the server takes at a create; more is had by renewing at once."""

    @field_validator("api_url")
    @classmethod
    def _without_version(cls, url: str) -> str:
        return url.rstrip("/").removesuffix("/v1")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        schemes = {self.server().scheme, self.scheme_of_execd}
        if self.ports == "signed":
            schemes.add(self.port_scheme)
            if self.runtime is not Runtime.KUBERNETES:
                raise ValueError("signed ports need the kubernetes runtime with its ingress gateway")
        if "http" in schemes and not self.allow_http:
            raise ValueError("http sends keys and contents in the clear; set allowHttp to accept that")
        if self.template_id is not None and self.pool_ref is not None:
            raise ValueError("give templateId or poolRef, not both")
        if self.pool_ref is not None and self.runtime is not Runtime.KUBERNETES:
            raise ValueError("poolRef needs the kubernetes runtime")
        if (self.egress is Egress.ALLOWLIST) != bool(self.egress_allow):
            raise ValueError("egressAllow goes with egress allowlist, and names what may be reached")
        try:
            told_apart(self.egress_allow)
        except InvalidRequest as error:
            raise ValueError(f"egressAllow: {error.message}") from None
        if self.egress is not Egress.OPEN and self.pool_ref is not None:
            raise ValueError("sandboxes of a poolRef are made beforehand and take no egress rules")
        return self

    @property
    def scheme_of_execd(self) -> str:
        return self.execd_scheme or self.server().scheme

    def server(self) -> Endpoint:
        """The lifecycle API's base; raises `InvalidRequest` for an address that this pool may not use."""
        try:
            return parse_endpoint(f"{self.api_url}/v1", self.rules())
        except InvalidRequest as error:
            error.details["field"] = "config.apiUrl"
            raise
