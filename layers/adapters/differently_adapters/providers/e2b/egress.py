"""Egress rules as E2B has them: what is allowed always wins, and only addresses can be denied."""

from __future__ import annotations

from pydantic import JsonValue

from differently_core.contract import EgressAction, EgressRules
from differently_core.errors import InvalidRequest

from ...peers import EVERYTHING, both
from .wire import NetworkRead


def body(rules: EgressRules) -> dict[str, JsonValue]:
    """Raises `InvalidRequest` for rules that E2B would read otherwise than they are meant."""
    allowed, denied = both(rules)
    if denied.hosts:
        raise InvalidRequest(
            "E2B denies addresses and blocks, not host names; deny by default instead.", field="egress"
        )
    if rules.allow and rules.deny:
        raise InvalidRequest("At E2B what is allowed wins over what is denied; give one of the two.", field="egress")
    if any(":" in network for network in (*allowed.networks, *denied.networks)):
        raise InvalidRequest("E2B takes IPv4 addresses and blocks, and host names.", field="egress")
    if rules.default is EgressAction.ALLOW:
        return {"allowOut": [], "denyOut": [*denied.networks]}
    return {"allowOut": [*allowed.hosts, *allowed.networks], "denyOut": [EVERYTHING]}


def in_force(seen: NetworkRead | None, wanted: dict[str, JsonValue]) -> bool:
    told = seen or NetworkRead()
    return [*(told.allow_out or ())] == wanted["allowOut"] and [*(told.deny_out or ())] == wanted["denyOut"]
