"""Sandboxes for AI agents, on any backend that a Differently server has.

    from differently import Sandbox

    with Sandbox.create() as sandbox:
        print(sandbox.run("echo hello").stdout)

`Client` is the way to everything else; `AsyncClient` and `AsyncSandbox` are the same for asyncio. Errors are in
`differently.errors`. Nothing is loaded before it is used: the command line starts without the parts it does not need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._version import VERSION as __version__

if TYPE_CHECKING:
    from ._async.client import AsyncClient
    from ._async.jobs import AsyncJob
    from ._async.sandbox import AsyncSandbox
    from ._async.snapshots import AsyncSnapshot
    from ._sync.client import Client
    from ._sync.jobs import Job
    from ._sync.sandbox import Sandbox
    from ._sync.snapshots import Snapshot
    from .commands import Event, Exit, Output, Result
    from .errors import ApiError, DifferentlyError
    from .progress import Progress

_HOMES = {
    "AsyncClient": "._async.client",
    "AsyncJob": "._async.jobs",
    "AsyncSandbox": "._async.sandbox",
    "AsyncSnapshot": "._async.snapshots",
    "Client": "._sync.client",
    "Job": "._sync.jobs",
    "Sandbox": "._sync.sandbox",
    "Snapshot": "._sync.snapshots",
    "Event": ".commands",
    "Exit": ".commands",
    "Output": ".commands",
    "Result": ".commands",
    "ApiError": ".errors",
    "DifferentlyError": ".errors",
    "Progress": ".progress",
}

__all__ = [
    "ApiError",
    "AsyncClient",
    "AsyncJob",
    "AsyncSandbox",
    "AsyncSnapshot",
    "Client",
    "DifferentlyError",
    "Event",
    "Exit",
    "Job",
    "Output",
    "Progress",
    "Result",
    "Sandbox",
    "Snapshot",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name], __name__), name)
