"""Time that passes between two calls."""

# Made from _async: python scripts/sync_client.py

from __future__ import annotations

import time


def pause(seconds: float) -> None:
    time.sleep(seconds)
