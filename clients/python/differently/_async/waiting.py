"""Time that passes between two calls."""

from __future__ import annotations

import asyncio


async def pause(seconds: float) -> None:
    await asyncio.sleep(seconds)
