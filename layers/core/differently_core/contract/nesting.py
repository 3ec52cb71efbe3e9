"""How deep a JSON value nests: what is walked or validated later must not be able to exhaust the stack."""

from __future__ import annotations

from collections.abc import Sequence


def nests_deeper(value: object, levels: int) -> bool:
    """Whether lists and objects lie more than `levels` within each other; looks no further than that."""
    level: Sequence[object] = [value]
    for _ in range(levels):
        level = [
            child
            for node in level
            if isinstance(node, (dict, list))
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return False
    return any(isinstance(node, (dict, list)) for node in level)
