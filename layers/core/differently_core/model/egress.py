"""What a sandbox may reach on the network: peers that are allowed, peers that are denied, and how two such limits meet.

A peer is a host name, a wildcard for names (`*.example.com`: every name below, not the name itself) or a CIDR block.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from pydantic import BaseModel, ConfigDict

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})+")
NAME_CHARACTERS_MAX = 253


class EgressLimit(BaseModel):
    """`allow` None allows everything that `deny` does not name; a list allows only what it names, an empty one nothing.

    A denial always wins.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()

    @property
    def restricts(self) -> bool:
        return self.allow is not None or bool(self.deny)

    def within(self, ceiling: EgressLimit) -> EgressLimit:
        """What both permit. Whether a name leads into a block is not known, so neither permits the other."""
        if self.allow is None or ceiling.allow is None:
            allow = ceiling.allow if self.allow is None else self.allow
        else:
            allow = (
                *(peer for peer in self.allow if _covered(peer, ceiling.allow)),
                *(peer for peer in ceiling.allow if peer not in self.allow and _covered(peer, self.allow)),
            )
        deny = tuple(dict.fromkeys((*ceiling.deny, *self.deny)))
        if allow is not None:
            allow = tuple(dict.fromkeys(peer for peer in allow if not _covered(peer, deny)))
        return EgressLimit(allow=allow, deny=deny)


def read_peer(text: str) -> str:
    """A peer as it is kept. Raises `ValueError` for what is none."""
    if "/" in text or ":" in text or text.replace(".", "").isdigit():
        try:
            return str(ipaddress.ip_network(text))
        except ValueError as error:
            raise ValueError("is no address and no CIDR block; host bits must be zero, as in 10.0.0.0/8") from error
    name = text.lower()
    if len(name) > NAME_CHARACTERS_MAX or not _NAME.fullmatch(name):
        raise ValueError("is no host name, no wildcard such as *.example.com and no CIDR block")
    return name


def covers(wide: str, narrow: str) -> bool:
    """Whether everything that `narrow` names is named by `wide` too."""
    block, part = _block(wide), _block(narrow)
    if block is not None and part is not None:
        return bool(block.version == part.version and part.subnet_of(block))
    if block is not None or part is not None:
        return False
    if not wide.startswith("*."):
        return wide == narrow
    return narrow.removeprefix("*").endswith(wide[1:]) and (narrow != wide[2:])


def _covered(peer: str, by: tuple[str, ...]) -> bool:
    return any(covers(wide, peer) for wide in by)


def _block(peer: str) -> Any:
    try:
        return ipaddress.ip_network(peer)
    except ValueError:
        return None
