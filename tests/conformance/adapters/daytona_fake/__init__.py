"""A stand-in for Daytona: its API, and the toolbox of its sandboxes, on one socket.

It follows the published descriptions of both, and what its official client was seen to send and read. Where they say
nothing, what it does is written where it is done.
"""

from __future__ import annotations

from .server import FakeDaytona

__all__ = ["FakeDaytona"]
