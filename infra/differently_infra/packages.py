"""The folders that stacks deploy as code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .packaging import FUNCTIONS


class Unbuilt(Exception):
    """The folders are not there."""


@dataclass(frozen=True)
class Packages:
    layers: Mapping[str, Path]
    functions: Mapping[str, Path]

    @classmethod
    def of(cls, folder: Path) -> Packages:
        """What `packaging` made there; raises `Unbuilt`."""
        made = cls(
            layers={name: folder / name for name in ("dependencies", "code")},
            functions={name: folder / name for name in FUNCTIONS},
        )
        missing = [path for path in (*made.layers.values(), *made.functions.values()) if not path.is_dir()]
        if missing:
            raise Unbuilt(f"{missing[0]} is missing: run `make layers` first.")
        return made
