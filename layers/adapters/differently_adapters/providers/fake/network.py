"""Ports that can be reached for a while, and rules for what a sandbox may reach."""

from __future__ import annotations

import re
from datetime import timedelta

from differently_core.contract import EgressRules, Exposure
from differently_core.errors import InvalidRequest, ProviderUnavailable

from .backend import FakeBackend
from .faults import Fault, Ignored
from .instances import FakeInstance

_PEER = re.compile(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(/[0-9]{1,3})?|[0-9a-fA-F:]+(/[0-9]{1,3})?")


def check_port(port: int) -> None:
    if not 1 <= port <= 65_535:
        raise InvalidRequest("A port is a number from 1 to 65535.", field="port")


def expose(backend: FakeBackend, instance: FakeInstance, port: int, seconds: int, fault: Fault | None) -> Exposure:
    """The same address while it lasts; another token after that."""
    with backend.lock:
        now = backend.clock.now()
        known = instance.ports.get(port)
        if known is not None and known.expires_at is not None and known.expires_at > now:
            return known
        token = backend.new_ref("token")
        made = Exposure(port, f"https://{port}-{instance.ref}.invalid/{token}", now + timedelta(seconds=seconds))
        if not isinstance(fault, Ignored):
            instance.ports[port] = made
        return made


def open_ports(backend: FakeBackend, instance: FakeInstance) -> list[int]:
    """Those that can be reached now."""
    now = backend.clock.now()
    return sorted(port for port, made in instance.ports.items() if made.expires_at is None or made.expires_at > now)


def set_egress(instance: FakeInstance, rules: EgressRules, fault: Fault | None) -> None:
    if not isinstance(fault, Ignored):
        instance.egress = rules
    if instance.egress != rules:  # accepted is not in force
        raise ProviderUnavailable("The backend did not put the rules in force.")


def check_rules(rules: EgressRules) -> None:
    for peer in (*rules.allow, *rules.deny):
        if not _PEER.fullmatch(peer):
            raise InvalidRequest("A rule is a host name, an address or a CIDR block.", field="egress")
