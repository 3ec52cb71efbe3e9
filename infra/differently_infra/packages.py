"""The folders that stacks deploy as code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .configuration import Microvms
from .packaging import FUNCTIONS

IMAGE_FILES = ("Dockerfile", "agent.py", "execd")


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


def check_image(chosen: Microvms) -> None:
    """AWS would find out only while it builds; raises `Unbuilt` naming what is missing."""
    missing = [name for name in IMAGE_FILES if chosen.enabled and not (Path(chosen.folder) / name).is_file()]
    if missing:
        raise Unbuilt(
            f"microvms.folder: {chosen.folder} has no {' and no '.join(missing)}. Copy examples/lambda-microvm-image "
            "there, put OpenSandbox's execd for arm64 beside it, and name your base image in the Dockerfile."
        )
