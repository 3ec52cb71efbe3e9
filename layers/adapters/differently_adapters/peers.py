"""Peers of egress rules: host names, addresses and blocks of addresses, told apart before a backend sees them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Final

from differently_core.contract import EgressRules
from differently_core.errors import InvalidRequest

_HOST: Final = re.compile(
    r"(\*\.)?([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
)
EVERYTHING: Final = "0.0.0.0/0"


@dataclass(frozen=True)
class Peers:
    """`networks` in CIDR form; a single address is a block of one."""

    hosts: tuple[str, ...]
    networks: tuple[str, ...]


def told_apart(peers: tuple[str, ...]) -> Peers:
    """Raises `InvalidRequest` for what is no peer."""
    hosts, networks = [], []
    for peer in peers:
        try:
            networks.append(str(ip_network(peer)))
        except ValueError:
            if not _HOST.fullmatch(peer):
                raise InvalidRequest("A rule is a host name, an address or a CIDR block.", field="egress") from None
            hosts.append(peer.lower())
    return Peers(tuple(hosts), tuple(networks))


def both(rules: EgressRules) -> tuple[Peers, Peers]:
    """What is allowed and what is denied."""
    return told_apart(rules.allow), told_apart(rules.deny)
