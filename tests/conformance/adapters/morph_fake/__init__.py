"""A stand-in for Morph Cloud's API: real sockets and commands, as its official client's source describes the service.

What the client does not tell, the statuses of most refusals among it, was never held against the service.
"""

from __future__ import annotations

from .server import FakeMorph, refused

__all__ = ["FakeMorph", "refused"]
