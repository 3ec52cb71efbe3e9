"""A stand-in for Fly's Machines API: the machines of one app, and commands in them.

It follows Fly's documentation and the shapes of its own client. Where they say nothing, what it does is written where
it is done.
"""

from __future__ import annotations

from .server import FakeFly

__all__ = ["FakeFly"]
