"""Egress of a pool's sandboxes: told at the create, and then believed only of a sandbox that says and shows it.

The rules are enforced by a sidecar, which was seen to start without effect on nodes that lack a kernel module. So every
sandbox of such a pool is asked what is in force, and tries once to reach an address that it must not reach. A pool
that has not made a sandbox yet is tried with one of its own at its first check.
"""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from differently_core.errors import ProviderUnavailable
from differently_core.model.exec import ExecRequest

from ...execd import Execd
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


def policy(config: OpenSandboxConfig) -> dict[str, JsonValue]:
    """The part of a create that sets the rules; empty where none are configured."""
    if config.egress is Egress.OPEN:
        return {}
    rules: list[JsonValue] = [{"action": "allow", "target": target} for target in config.egress_allow]
    return {"networkPolicy": {"defaultAction": "deny", "egress": rules}}


def check(api: Lifecycle, config: OpenSandboxConfig, ref: str, execd: Execd) -> None:
    """Raise `ProviderUnavailable` unless the configured rules are in force in this sandbox."""
    if config.egress is Egress.OPEN:
        return
    _check_told(api.policy(ref), config)
    host, _, port = config.egress_probe.rpartition(":")
    line = _TRY.replace("HOST", host).replace("PORT", port)
    if REACHED in execd.exec(ExecRequest(command=line, timeout_seconds=TRY_SECONDS), 1_024).stdout.decode():
        raise ProviderUnavailable(
            f"OpenSandbox says that egress is denied, and a sandbox reached {config.egress_probe}. Does the node have "
            "the kernel module xt_mark?"
        )


def _check_told(told: PolicyRead, config: OpenSandboxConfig) -> None:
    if told.enforcement_mode != ENFORCED:
        raise ProviderUnavailable(
            f"OpenSandbox enforces egress by names only; set its [egress] mode to {ENFORCED}, or the pool's egress to "
            "open."
        )
    allowed = {rule.target for rule in told.policy.egress if rule.action == "allow"}
    if told.policy.default_action != "deny" or not allowed <= set(config.egress_allow):
        raise ProviderUnavailable("OpenSandbox lets more out of a sandbox than the pool's configuration says.")
