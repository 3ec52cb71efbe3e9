"""A stand-in for E2B: its control API, and the agent (envd) of its sandboxes, on one socket.

It follows the published descriptions of both and what the official client sends and reads; that client is run against
it by `make test-sdks`. Where they say nothing, what it does is written where it is done.
"""

from __future__ import annotations

from .server import FakeE2b

__all__ = ["FakeE2b"]
