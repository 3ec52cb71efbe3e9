"""Backends behind the plugin protocol: the kind `remote`. Its server side is in `remote.handler` and `remote.serve`."""

from __future__ import annotations

from differently_core.contract import Registration

from .adapter import RemoteAdapter
from .config import RemoteConfig

__all__ = ["REGISTRATION", "RemoteAdapter", "RemoteConfig"]

REGISTRATION = Registration(
    kind="remote",
    config=RemoteConfig,
    trust=None,
    dev_only=False,
    summary="A backend behind a plugin of your own that speaks the adapter protocol, in any language.",
)
