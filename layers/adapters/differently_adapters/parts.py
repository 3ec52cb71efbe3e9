"""Content cut into parts, for backends that take only so much in one request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def in_parts(data: Iterable[bytes], bytes_max: int) -> Iterator[bytes]:
    """The same bytes in parts of `bytes_max`; the last one is what is left. Of nothing there is one, an empty part."""
    held = bytearray()
    for chunk in data:
        held += chunk
        while len(held) > bytes_max:
            yield bytes(held[:bytes_max])
            del held[:bytes_max]
    yield bytes(held)
