"""A stand-in for Vercel Sandbox: named sandboxes, the sessions they boot, and what is done in these.

It follows what Vercel's official clients send and read, and its documentation. Where they say nothing, what it does is
written where it is done.
"""

from __future__ import annotations

from .server import FakeVercel

__all__ = ["FakeVercel"]
