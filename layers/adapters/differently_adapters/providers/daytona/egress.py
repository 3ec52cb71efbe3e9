"""Egress rules as Daytona has them: everything, nothing, or what two lists name."""

from __future__ import annotations

from pydantic import JsonValue

from differently_core.contract import EgressAction, EgressRules
from differently_core.errors import InvalidRequest

from ...peers import both
from .wire import SandboxRead


def body(rules: EgressRules) -> dict[str, JsonValue]:
    """Raises `InvalidRequest` for rules that Daytona cannot hold."""
    allowed, denied = both(rules)
    if denied.hosts or denied.networks:
        raise InvalidRequest("Daytona cannot deny single peers; deny by default and allow the others.", field="egress")
    if any(":" in network for network in allowed.networks):
        raise InvalidRequest("Daytona allows IPv4 addresses and blocks, and host names.", field="egress")
    opened = rules.default is EgressAction.ALLOW
    listed = bool(allowed.hosts or allowed.networks) and not opened
    return {
        "networkBlockAll": not opened and not listed,
        "networkAllowList": "" if opened else ",".join(allowed.networks),
        "domainAllowList": "" if opened else ",".join(allowed.hosts),
    }


def in_force(seen: SandboxRead, wanted: dict[str, JsonValue]) -> bool:
    return wanted == {
        "networkBlockAll": seen.network_block_all,
        "networkAllowList": seen.network_allow_list or "",
        "domainAllowList": seen.domain_allow_list or "",
    }
