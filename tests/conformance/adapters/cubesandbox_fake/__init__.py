"""A stand-in for CubeSandbox on a socket: CubeAPI, CubeProxy and the agent in each sandbox.

Made from CubeAPI's source of May 2026 and the requests of its client 0.7.3: routes, statuses, its scheduler's codes
in texts, lists whose limit counts nodes, pauses that are done later, an environment that is taken and not applied.
"""

from __future__ import annotations

from .server import FakeCubeSandbox, refused, relayed

__all__ = ["FakeCubeSandbox", "refused", "relayed"]
