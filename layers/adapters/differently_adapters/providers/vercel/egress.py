"""Egress rules as Vercel has them: everything, nothing, or host names and blocks that are allowed."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import JsonValue

from differently_core.contract import EgressAction, EgressRules
from differently_core.errors import InvalidRequest

from ...peers import both


@dataclass(frozen=True)
class Meant:
    """What a policy comes to, however it is written."""

    mode: str
    hosts: frozenset[str] = field(default_factory=frozenset)
    allowed: frozenset[str] = field(default_factory=frozenset)
    denied: frozenset[str] = field(default_factory=frozenset)


def policy(rules: EgressRules) -> dict[str, JsonValue]:
    """Raises `InvalidRequest` for rules that Vercel cannot hold."""
    allowed, denied = both(rules)
    if denied.hosts or denied.networks:
        raise InvalidRequest(
            "Deny by default at Vercel and allow the others; single peers are not denied.", field="egress"
        )
    if rules.default is EgressAction.ALLOW:
        return {"mode": "allow-all"}
    if not allowed.hosts and not allowed.networks:
        return {"mode": "deny-all"}
    return {"allow": {host: [] for host in allowed.hosts}, "subnets": {"allow": [*allowed.networks]}}


def meant(told: JsonValue) -> Meant | None:
    """A policy as it was sent, or as Vercel tells it; None for what we do not understand."""
    if not isinstance(told, dict):
        return None
    match told:
        case {"mode": ("allow-all" | "deny-all") as mode}:
            return Meant(str(mode))
        case {"mode": "custom", **custom}:
            hosts, allowed, denied = (custom.get(name) for name in ("allowedDomains", "allowedCIDRs", "deniedCIDRs"))
            return Meant("custom", _names(hosts), _names(allowed), _names(denied))
        case {"allow": (dict() | list()) as hosts}:
            subnets = told.get("subnets")
            blocks = subnets if isinstance(subnets, dict) else {}
            return Meant("custom", _names([*hosts]), _names(blocks.get("allow")), _names(blocks.get("deny")))
        case _:
            return None


def _names(told: JsonValue) -> frozenset[str]:
    return frozenset(str(name) for name in told) if isinstance(told, list) else frozenset()
