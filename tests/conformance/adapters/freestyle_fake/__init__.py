"""A stand-in for Freestyle's VM API: real sockets and commands, as its official client's source describes the service.

What the client does not tell is written where it is done; it was never held against the service.
"""

from __future__ import annotations

from .server import FakeFreestyle, refused

__all__ = ["FakeFreestyle", "refused"]
