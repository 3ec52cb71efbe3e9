"""Egress of sandboxes: told at the create, and then believed only of a sandbox that says and shows it.

What a sandbox gets are its own rules, within those of its pool.

The rules are enforced by a sidecar, which was seen to start without effect on nodes that lack a kernel module. So every
sandbox of such a pool is asked what is in force, and tries once to reach an address that it must not reach. A pool
that has not made a sandbox yet is tried with one of its own at its first check.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Final

from pydantic import JsonValue

from differently_core.contract import EgressAction, EgressRules
from differently_core.errors import ProviderUnavailable
from differently_core.model.exec import ExecRequest

from ...execd import Execd
from ...peers import told_apart
from .config import Egress, OpenSandboxConfig
from .lifecycle import Lifecycle
from .wire import PolicyRead

ENFORCED: Final = "dns+nft"
"""The mode that holds for addresses too. `dns` only keeps names from being resolved."""
REACHED: Final = "reached"
TRY_SECONDS: Final = 8
_TRY: Final = r"""
try() {
  if command -v bash >/dev/null 2>&1; then bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$1" "$2"
  elif command -v nc >/dev/null 2>&1; then nc -w 3 "$1" "$2" < /dev/null
  elif command -v python3 >/dev/null 2>&1; then
    python3 -c 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3)' "$1" "$2"
  else return 1
  fi
}
try HOST PORT >/dev/null 2>&1 && echo reached
"""


def rules_of(config: OpenSandboxConfig, asked: EgressRules | None) -> EgressRules | None:
    """The sandbox's rules within the pool's; None where the pool controls nothing."""
    match config.egress:
        case Egress.OPEN:
            return None
        case Egress.RULES:
            return asked or EgressRules(EgressAction.ALLOW)
        case Egress.NONE:
            return EgressRules(EgressAction.DENY)
        case Egress.ALLOWLIST:
            if asked is None:
                return EgressRules(EgressAction.DENY, config.egress_allow)
            named = asked.default is EgressAction.DENY
            allow = tuple(peer for peer in config.egress_allow if not named or peer in asked.allow)
            return EgressRules(EgressAction.DENY, allow, asked.deny)


def body(rules: EgressRules) -> dict[str, JsonValue]:
    """As OpenSandbox has them: in an order, in which a denial comes first."""
    denied: list[JsonValue] = [{"action": "deny", "target": peer} for peer in rules.deny]
    allowed: list[JsonValue] = [{"action": "allow", "target": peer} for peer in rules.allow]
    return {"defaultAction": rules.default.value, "egress": denied + allowed}


def policy(config: OpenSandboxConfig, asked: EgressRules | None) -> dict[str, JsonValue]:
    """The part of a create that sets the rules; empty where the pool controls nothing."""
    rules = rules_of(config, asked)
    return {} if rules is None else {"networkPolicy": body(rules)}


def check(api: Lifecycle, config: OpenSandboxConfig, asked: EgressRules | None, ref: str, execd: Execd) -> None:
    """Raise `ProviderUnavailable` unless the sandbox's rules are in force."""
    rules = rules_of(config, asked)
    if rules is None:
        return
    confirm(api, ref, rules)
    _try(config, rules, execd)


def confirm(api: Lifecycle, ref: str, rules: EgressRules) -> None:
    """Raise `ProviderUnavailable` unless exactly these rules are said to be in force."""
    told = api.policy(ref)
    _check_mode(told)
    wanted = {("deny", peer) for peer in rules.deny} | {("allow", peer) for peer in rules.allow}
    given = {(rule.action, rule.target) for rule in told.policy.egress}
    if told.policy.default_action != rules.default.value or given != wanted:
        raise ProviderUnavailable("OpenSandbox has other egress rules in force than the sandbox was given.")


def check_restarted(api: Lifecycle, config: OpenSandboxConfig, ref: str, execd: Execd) -> None:
    """Of a sandbox whose own rules are not known here: that what is in force lies within the pool's."""
    most = rules_of(config, None)
    if most is None:
        return
    told = api.policy(ref)
    _check_mode(told)
    allowed = tuple(rule.target for rule in told.policy.egress if rule.action == "allow")
    if most.default is EgressAction.DENY:
        if told.policy.default_action != "deny" or not set(allowed) <= set(most.allow):
            raise ProviderUnavailable("OpenSandbox lets more out of a sandbox than the pool's configuration says.")
        _try(config, EgressRules(EgressAction.DENY, allowed), execd)


def _check_mode(told: PolicyRead) -> None:
    if told.enforcement_mode != ENFORCED:
        raise ProviderUnavailable(
            f"OpenSandbox enforces egress by names only; set its [egress] mode to {ENFORCED}, or the pool's egress to "
            "open."
        )


def _try(config: OpenSandboxConfig, rules: EgressRules, execd: Execd) -> None:
    """Reach for what must not be reached; where the rules permit it, there is nothing to be seen."""
    host, _, port = config.egress_probe.rpartition(":")
    if rules.default is EgressAction.ALLOW or _names(rules.allow, host):
        return
    line = _TRY.replace("HOST", host).replace("PORT", port)
    if REACHED in execd.exec(ExecRequest(command=line, timeout_seconds=TRY_SECONDS), 1_024).stdout.decode():
        raise ProviderUnavailable(
            f"OpenSandbox says that egress is denied, and a sandbox reached {config.egress_probe}. Does the node have "
            "the kernel module xt_mark?"
        )


def _names(peers: tuple[str, ...], host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return True if any("*" in peer for peer in peers) else host in peers
    return any(address in ip_network(peer) for peer in told_apart(peers).networks)
