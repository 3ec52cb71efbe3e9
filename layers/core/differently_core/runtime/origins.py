"""Web origins that may read answers in a browser, as a setting: exact ones, separated by spaces; none by default."""

from __future__ import annotations

import re
from typing import Final

ORIGINS_MAX: Final = 32
_ORIGIN = re.compile(r"https?://(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])(?::[1-9][0-9]{0,4})?")
_DEFAULT_PORTS: Final = (("http://", ":80"), ("https://", ":443"))


def read_origins(text: str) -> frozenset[str]:
    """Raises `ValueError` for what no browser would ever send: a path, a wildcard, capitals, the scheme's own port."""
    found = text.split()
    if len(found) > ORIGINS_MAX:
        raise ValueError(f"names {len(found)} origins; at most {ORIGINS_MAX} are taken")
    for number, origin in enumerate(found, start=1):
        if not _ORIGIN.fullmatch(origin):
            raise ValueError(
                f"origin {number} is none: write scheme, host and port alone, such as https://console.example.com"
            )
        if any(origin.startswith(scheme) and origin.endswith(port) for scheme, port in _DEFAULT_PORTS):
            raise ValueError(f"origin {number} names its scheme's own port, which browsers leave out; leave it out too")
    return frozenset(found)
