"""Azure Container Apps dynamic sessions: shell sessions of a pool in an Azure subscription."""

from __future__ import annotations

from differently_core.contract import Need, Registration, Requirements, Verification

from .adapter import AzureSessionsAdapter
from .config import AzureSessionsConfig

__all__ = ["REGISTRATION", "AzureSessionsAdapter", "AzureSessionsConfig"]

REGISTRATION = Registration(
    kind="azure-sessions",
    config=AzureSessionsConfig,
    trust=None,
    dev_only=False,
    summary="Azure Container Apps dynamic sessions: shell sessions of a pool in your subscription.",
    requirements=Requirements(credential=Need.REQUIRED, credential_fields=("client_secret",)),
    verification=Verification.FAKE,
    limits=(
        "Only session pools of the type Shell; image, CPU, memory and egress are the session pool's.",
        "A session ends when nothing was asked of it for the session pool's cooldown; while we run, it is renewed.",
        "Azure makes a session of any command that names one, so what takes the place of one that ended is removed.",
        "No stop, pause, snapshots or ports.",
        "A command that may take long is started as a job and looked at, so its output may come in pieces.",
        "Files travel inside commands in small parts, so large ones are slow.",
        "Azure does not tell how much room there is.",
    ),
    identity=("pool_url",),
)
