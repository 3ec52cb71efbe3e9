"""How large a sandbox is, and arithmetic on it."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from .record import Wire

UNLIMITED = 10**12
"""Stands for "no limit" in a counter: far above any real sum, and still exact in DynamoDB."""

DIMENSIONS = ("sandboxes", "cpu_millis", "memory_mib", "disk_gib")


class Size(BaseModel):
    """An amount of each counted resource; one sandbox is `sandboxes=1` and its own size."""

    model_config = ConfigDict(frozen=True)

    sandboxes: int = 0
    cpu_millis: int = 0
    memory_mib: int = 0
    disk_gib: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(**{name: getattr(self, name) + getattr(other, name) for name in DIMENSIONS})

    def __sub__(self, other: Size) -> Size:
        return Size(**{name: getattr(self, name) - getattr(other, name) for name in DIMENSIONS})

    def fits_in(self, room: Size) -> bool:
        return all(getattr(self, name) <= getattr(room, name) for name in DIMENSIONS)

    def exceeding(self, limit: Size) -> str | None:
        """The first dimension in which this is larger than `limit`, or None."""
        return next((name for name in DIMENSIONS if getattr(self, name) > getattr(limit, name)), None)

    @classmethod
    def unlimited(cls) -> Self:
        return cls(**dict.fromkeys(DIMENSIONS, UNLIMITED))


class Resources(Wire):
    """The size a caller asks for. Units: virtual CPUs (steps of 0.001), MiB of memory, GiB of disk."""

    cpu: Annotated[float, Field(gt=0, le=1024)] | None = None
    memory_mib: Annotated[int, Field(ge=16, le=16_777_216)] | None = None
    disk_gib: Annotated[int, Field(ge=0, le=1_048_576)] | None = None
