"""What every operation is given, and who calls it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from ..contract import Adapter, Owner
from ..errors import InvalidRequest
from ..model.event import Event
from ..model.policy import RETENTION_SECONDS_MAX
from ..model.pool import Pool
from ..model.tenancy import KeyScope
from ..runtime.clock import Clock
from ..runtime.ids import IdSource, OrgId, ProjectId, SandboxId
from ..store.archive import Archive, NoArchive
from ..store.ports import Action, Committed, Outcome, Refused, Store, StoreThrottled
from ..store.sealing import NoSealer, Sealer
from ..store.staging import NoStaging, Staging
from .catalog import Catalog
from .courier import Courier, NoCourier

Values = tuple[tuple[str | None, str], ...]
"""Opened secrets of a sandbox, each with the variable that it became, if it did."""
BACKOFF_DOUBLINGS_MAX = 7
OPENED_MAX = 500
"""Sandboxes whose opened secrets a process keeps."""


class Nudges(Protocol):
    """Messages that make things happen soon. Each may be lost, doubled or late: the due index makes them happen."""

    def worker(self, sandbox: str) -> None:
        """Step this sandbox."""
        ...

    def cleanup(self, sandbox: str, attempt: int) -> None:
        """Settle this attempt's debt."""
        ...

    def snapshot(self, snapshot: str) -> None:
        """Do what is due for this snapshot."""
        ...

    def port(self, sandbox: str, port: int) -> None:
        """Look whether this port is still wanted."""
        ...

    def dispatch(self) -> None:
        """Look at the queue."""
        ...

    def closing(self, tenant: str) -> None:
        """Go on removing what an organization or project holds."""
        ...

    def deliver(self, webhook: str) -> None:
        """Serve what is on its way to this webhook."""
        ...

    def reconcile(self, pool: str) -> None:
        """Compare this pool with the records, ahead of the next regular pass."""
        ...


class Backends(Protocol):
    def adapter(self, pool: Pool) -> Adapter:
        """The pool's adapter, built on first use; raises `ProviderUnavailable` if it cannot be built."""
        ...

    def fingerprint(self, pool: Pool) -> str:
        """Names the backend that the pool's configuration leads to; raises `InvalidRequest` for a kind not built."""
        ...

    def trial(self, pool: Pool, credential: Mapping[str, str] | None = None) -> Adapter:
        """An adapter of its own, to try what is about to be stored; whoever asks closes it.

        With the given credential, or with the one that the pool refers to. Raises `InvalidRequest` naming the field
        that its kind cannot use.
        """
        ...


@dataclass(frozen=True)
class Tuning:
    """Bounds and intervals, in seconds unless the name says otherwise."""

    attempts_max: int = 3
    """Failures that count before a sandbox fails."""
    backoff_seconds: float = 2.0
    backoff_doublings_max: int = 5
    capacity_requeue_seconds: float = 2.0
    """How long a pool rests after its backend said that it is full."""
    observe_seconds: float = 2.0
    ready_timeout_seconds: float = 180.0
    terminate_retry_seconds: float = 5.0
    terminate_retry_seconds_max: float = 300.0
    delete_timeout_seconds: float = 60.0
    move_call_seconds: float = 60.0
    """How long one call to stop, start, pause or resume is waited for; then it is observed."""
    move_settles_seconds: float = 30.0
    """After a stop or start call ended: so long it may still turn out to have been heard."""
    move_seconds: float = 900.0
    """A move as a whole, checkpoints of much memory included."""
    look_seconds: float = 10.0
    claim_margin_seconds: float = 5.0
    queue_timeout_seconds_default: int = 3600
    queue_timeout_seconds_max: int = 86_400
    queue_look_seconds: float = 60.0
    idle_timeout_seconds_default: int = 0
    """0 is never."""
    backstop_seconds: float = 300.0
    """So much later than we do, a backend ends a sandbox by itself."""
    backstop_seconds_min: float = 60.0
    renew_seconds_min: float = 15.0
    """Between two renewals of one lease."""
    lifetime_margin_seconds: float = 30.0
    """So much earlier than its pool must, we end a sandbox that the pool cannot keep for longer."""
    retention_seconds: int = 30 * 24 * 3600
    """How long what is stopped or paused is kept where no policy says it."""
    snapshot_retention_seconds: int = 30 * 24 * 3600
    """The same for a snapshot whose caller does not say it either."""
    retention_seconds_max: int = RETENTION_SECONDS_MAX
    """Longer than this nothing is kept, whoever says so."""
    job_look_seconds: float = 60.0
    """How often a job is looked at that alone keeps a sandbox awake."""
    wake_seconds: float = 90.0
    """How long a call waits for the sandbox that it woke."""
    ttl_seconds_default: int = 3600
    conflict_tries_max: int = 8

    webhook_post_seconds: float = 10.0
    webhook_tries_max: int = 13
    webhook_backoff_seconds: float = 5.0
    webhook_backoff_seconds_max: float = 12 * 3600
    """With the tries above about three days in all."""
    webhook_rest_seconds_max: float = 300.0
    """How long a receiver that is down is left alone at a stretch."""
    webhook_failing_seconds: float = 5 * 24 * 3600
    """A receiver that has taken nothing for so long disables its webhook."""
    webhook_compare_seconds: float = 3600.0
    """How often the log is compared with what a webhook was offered."""
    webhook_run_seconds: float = 20.0
    webhook_parallel: int = 8
    """Requests to one receiver at a time."""


class Opened:
    """Secrets of sandboxes that this process has opened, by sandbox: they never change while it lives."""

    def __init__(self) -> None:
        self._kept: OrderedDict[SandboxId, Values] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, sandbox: SandboxId) -> Values | None:
        with self._lock:
            return self._kept.get(sandbox)

    def put(self, sandbox: SandboxId, values: Values) -> None:
        with self._lock:
            self._kept[sandbox] = values
            while len(self._kept) > OPENED_MAX:
                self._kept.popitem(last=False)


@dataclass(frozen=True)
class Core:
    """Everything an operation may touch. Built once for each process by its wiring."""

    store: Store
    clock: Clock
    ids: IdSource
    nudges: Nudges
    catalog: Catalog
    backends: Backends
    worker_name: str = "worker"
    tuning: Tuning = field(default_factory=Tuning)
    sealer: Sealer = field(default_factory=NoSealer)
    staging: Staging = field(default_factory=NoStaging)
    archive: Archive = field(default_factory=NoArchive)
    """Where roots of the audit log are kept besides the log itself."""
    opened: Opened = field(default_factory=Opened)
    courier: Courier = field(default_factory=NoCourier)

    def owner(self, sandbox: str) -> Owner:
        return Owner(self.catalog.installation().id, sandbox)

    def after(self, seconds: float) -> datetime:
        return self.clock.now() + timedelta(seconds=seconds)

    def commit(self, actions: Sequence[Action], *, tries_max: int | None = None) -> Outcome:
        """One transaction, tried again while somebody else is writing the same rows.

        Only for decisions that stay right whoever wins: every action carries its own condition. A refusal names every
        condition that does not hold: one that meets a conflict too tells only of some, and is tried again. Raises
        `StoreThrottled` when the conflict does not pass.
        """
        for attempt in range(tries_max or self.tuning.conflict_tries_max):
            outcome = self.store.transact(actions)
            if isinstance(outcome, Committed) or not outcome.conflicts:
                return outcome
            self.back_off(min(attempt, BACKOFF_DOUBLINGS_MAX))
        raise StoreThrottled("Many calls are changing the same thing right now; repeat the call in a second.")

    def back_off(self, attempt: int) -> None:
        """Let whoever else is writing finish; longer each time."""
        self.clock.sleep(0.01 * 2**attempt * self.jitter())

    def jitter(self) -> float:
        """0.5 to 1.5, to multiply a wait with."""
        return _jitter(self.ids)

    def event(self, caller: Caller, action: str, target: str, org: str, **facts: object) -> Event:
        return Event.model_validate(
            {
                "id": self.ids.new("evt"), "org": org, "at": self.clock.now(), "actor": caller.actor,
                "request_id": caller.request_id, "action": action, "target": target, **facts,
            }
        )  # fmt: skip


def _jitter(ids: IdSource) -> float:
    """0.5 to 1.5 from the last characters of a fresh id, so that a seeded run repeats."""
    return 0.5 + int.from_bytes(ids.new("j")[-2:].encode(), "big") % 1000 / 1000


@dataclass(frozen=True)
class Caller:
    """Who asks: a key with its scope, or a part of the system acting on its own (`actor` alone)."""

    actor: str
    request_id: str
    scope: KeyScope | None = None
    org: OrgId | None = None
    project: ProjectId | None = None

    @property
    def operator(self) -> bool:
        return self.scope is KeyScope.OPERATOR

    def tenant_project(self) -> ProjectId:
        if self.project is None:
            raise InvalidRequest("Name the project: an operator key belongs to none.", field="projectId")
        return self.project


SYSTEM = "system"


def system(part: str) -> Caller:
    """A background part acting by itself, such as `system:timer`."""
    return Caller(actor=f"{SYSTEM}:{part}", request_id=f"{SYSTEM}:{part}")


__all__ = [
    "SYSTEM", "Backends", "Caller", "Committed", "Core", "Nudges", "Refused", "Tuning", "system",
]  # fmt: skip
