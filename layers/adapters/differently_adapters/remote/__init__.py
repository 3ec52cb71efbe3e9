"""Backends behind the plugin protocol: the kind `remote`. Its server side is in `remote.handler` and `remote.serve`."""

from __future__ import annotations

from differently_core.contract import Need, Registration, Requirements, Verification

from .adapter import RemoteAdapter
from .config import RemoteConfig

__all__ = ["REGISTRATION", "RemoteAdapter", "RemoteConfig"]

REGISTRATION = Registration(
    kind="remote",
    config=RemoteConfig,
    trust=None,
    dev_only=False,
    summary="A backend behind a plugin of your own that speaks the adapter protocol, in any language.",
    requirements=Requirements(credential=Need.OPTIONAL, credential_fields=("token",)),
    verification=Verification.REAL_SERVER,
    limits=(
        "A pool supports what its plugin says that it supports.",
        "A version 1 plugin returns output as text: bytes that are not UTF-8 become U+FFFD.",
        "A version 1 plugin knows no owner: its instance is looked at before each use, which costs a round trip.",
    ),
    identity=("endpoint",),
)
