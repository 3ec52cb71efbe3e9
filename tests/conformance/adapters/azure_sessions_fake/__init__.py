"""A stand-in for Azure's dynamic sessions on a socket: the token endpoint, and one session pool of the type Shell.

Made from the published description of version 2025-02-02-preview and Microsoft's tutorial for shell sessions.
"""

from __future__ import annotations

from .server import CLIENT, POOL, TENANT, FakeAzureSessions, refused

__all__ = ["CLIENT", "POOL", "TENANT", "FakeAzureSessions", "refused"]
