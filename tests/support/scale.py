"""How much of a search a run takes: a small share with every change, the whole with `make prove`."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")
PROVING = bool(os.environ.get("DIFFERENTLY_PROVE"))


def scaled(with_every_change: T, on_demand: T) -> T:
    return on_demand if PROVING else with_every_change
