"""A stand-in for Boat's public API: real sockets and commands, as its official client's models describe the service.

It was never held against the service.
"""

from __future__ import annotations

from .server import FakeBoat, refused

__all__ = ["FakeBoat", "refused"]
