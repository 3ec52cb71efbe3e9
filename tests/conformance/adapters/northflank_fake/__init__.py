"""A stand-in for Northflank's API: the services of one project, and commands in them over WebSockets.

It follows Northflank's documentation and the shapes of its own client. Where they say nothing, what it does is written
where it is done.
"""

from __future__ import annotations

from .server import FakeNorthflank

__all__ = ["FakeNorthflank"]
