"""What each function is and may do: the one table that code, permissions, alarms and dashboards are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from .configuration import Configuration


class Grant(StrEnum):
    """One thing that a function may do. What each means in actions and resources is in `permissions`."""

    KEYS = "read API keys"
    CONFIG = "read what operators decide"
    DECIDE = "change what operators decide"
    STATE = "read and change state"
    LOG = "write events"
    FOLLOW = "read the log's stream"
    HISTORY = "read events and their chains"
    CHAIN = "append to the chains of events"
    TELL = "send to deliver"
    TOLD = "receive from deliver's queue"
    PUBLISH = "publish events"
    ARCHIVE = "keep roots of the log for good"
    STEP = "invoke the worker"
    RECONCILE = "invoke the reconciler"
    QUEUE = "send to dispatch"
    RECEIVE = "receive from dispatch's queue"
    WAIT = "start the workflow"
    PEPPER = "read the peppers"
    SEAL = "seal a credential"
    UNSEAL = "open a credential"
    VAULT = "read credentials that are kept elsewhere"
    STAGE = "keep large files on their way"
    MICROVMS = "run Lambda MicroVMs"


G = Grant
_NUDGES: Final = (G.STEP, G.QUEUE)


@dataclass(frozen=True)
class Function:
    """`package` is the folder of its code; `reaches_backends` puts it into the VPC when there is one."""

    package: str
    handler: str
    seconds: int
    grants: tuple[Grant, ...]
    about: str
    reaches_backends: bool = False

    @property
    def all_grants(self) -> tuple[Grant, ...]:
        """With what comes with reaching backends: one of them is AWS itself, under the function's own role."""
        return (*self.grants, Grant.MICROVMS) if self.reaches_backends else self.grants


FUNCTIONS: Final[Mapping[str, Function]] = {
    "authorizer": Function(
        "api", "differently_api.boot.authorizer.handler", 5, (G.KEYS, G.PEPPER), "proves API keys",
    ),
    "control": Function(
        "api", "differently_api.boot.control.handler", 29, (G.CONFIG, G.STATE, G.LOG, G.HISTORY, *_NUDGES),
        "sandboxes as records",
    ),
    "admin": Function(
        "api", "differently_api.boot.admin.handler", 29,
        (G.CONFIG, G.DECIDE, G.STATE, G.LOG, G.HISTORY, *_NUDGES, G.TELL, G.PEPPER, G.SEAL, G.UNSEAL, G.VAULT),
        "what operators decide", reaches_backends=True,
    ),
    "data": Function(
        "api", "differently_api.boot.data.handler", 900,
        (G.CONFIG, G.STATE, G.LOG, G.HISTORY, *_NUDGES, G.UNSEAL, G.VAULT, G.STAGE), "commands, files and waits",
        reaches_backends=True,
    ),
    "worker": Function(
        "scheduler", "differently_scheduler.boot.worker.handler", 900,
        (G.CONFIG, G.STATE, G.LOG, *_NUDGES, G.TELL, G.WAIT, G.UNSEAL, G.VAULT), "steps of sandboxes and cleanups",
        reaches_backends=True,
    ),
    "dispatch": Function(
        "scheduler", "differently_scheduler.boot.dispatch.handler", 60,
        (G.CONFIG, G.STATE, G.LOG, *_NUDGES, G.RECEIVE), "admits what waits",
    ),
    "reconcile": Function(
        "reconciler", "differently_reconciler.boot.reconcile.handler", 300,
        (G.CONFIG, G.STATE, G.LOG, G.HISTORY, *_NUDGES, G.UNSEAL, G.VAULT),
        "compares one pool with its backend, and counts what it holds",
        reaches_backends=True,
    ),
    "tick": Function(
        "scheduler", "differently_scheduler.boot.tick.handler", 300,
        (G.CONFIG, G.STATE, G.LOG, G.HISTORY, *_NUDGES, G.TELL, G.RECONCILE, G.UNSEAL, G.VAULT),
        "sweeps what is due, probes pools and adds up usage",
        reaches_backends=True,
    ),
    "sealer": Function(
        "scheduler", "differently_scheduler.boot.sealer.handler", 60,
        (G.CONFIG, G.FOLLOW, G.HISTORY, G.CHAIN, G.ARCHIVE), "seals events into chains",
    ),
    "projector": Function(
        "scheduler", "differently_scheduler.boot.projector.handler", 60,
        (G.FOLLOW, G.CONFIG, G.STATE, G.TELL, G.PUBLISH), "tells webhooks and the bus of events",
    ),
    # Outside of the VPC whatever is configured: what tenants point at is reached from nowhere near the inside.
    "deliver": Function(
        "scheduler", "differently_scheduler.boot.deliver.handler", 60,
        (G.CONFIG, G.STATE, G.LOG, G.HISTORY, G.TELL, G.TOLD, G.UNSEAL), "sends to webhooks",
    ),
}  # fmt: skip

STREAM_HANDLER: Final = "differently_api.boot.data.stream"
"""Of data, where answers are streamed: our own runtime serves it."""
STREAM_FUNCTIONS: Final = ("sealer", "projector")
"""Each follows the log's stream at its own place."""
API_FUNCTIONS: Final = ("authorizer", "control", "admin", "data")
WORK_FUNCTIONS: Final = ("worker", "dispatch", "reconcile", "tick", "deliver", *STREAM_FUNCTIONS)


def memory(configuration: Configuration, function: str) -> int:
    """MiB."""
    chosen = configuration.functions
    special = {"data": chosen.data_memory_mib, "authorizer": chosen.authorizer_memory_mib}
    return special.get(function, chosen.memory_mib)


def in_vpc(configuration: Configuration, function: str) -> bool:
    return configuration.network.vpc and FUNCTIONS[function].reaches_backends
