"""A stand-in for Blaxel: its control plane, and the data plane of its sandboxes, on one socket.

It follows the published description of the data plane and what the official client sends and reads. Where they say
nothing, what it does is written where it is done.
"""

from __future__ import annotations

from .server import FakeBlaxel

__all__ = ["FakeBlaxel"]
