"""What pools of most kinds are told alike: which addresses they may use, and what else their sandboxes have."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, field_validator

from differently_core.model import features
from differently_core.model.record import camel

from .http import EndpointRules


class ReachingConfig(BaseModel):
    """Of a pool whose backend is reached over the network. Public addresses over https, unless it opts in to more."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=camel, populate_by_name=True)

    allow_http: bool = False
    """Permit plain http, which sends keys and contents in the clear."""
    allow_private: bool = False
    """Permit addresses of private networks, also where the backend tells them."""
    allow_loopback: bool = False
    """Permit this very machine, for development."""

    def rules(self) -> EndpointRules:
        return EndpointRules(http=self.allow_http, private=self.allow_private, loopback=self.allow_loopback)


class ProviderConfig(ReachingConfig):
    """Of a pool at a provider that does not tell everything that its sandboxes have."""

    features: tuple[str, ...] = ()
    """What the sandboxes of this pool have beyond what the kind knows, such as `arch.amd64`; reported, not checked."""

    @field_validator("features")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(names) - features.KNOWN)
        if unknown:
            raise ValueError(f"unknown features: {', '.join(unknown)}")
        return names
