"""The Daytona adapter: the contract's operations over the API and the toolbox in each sandbox.

Every call looks at the sandbox first and checks its labels. That same look tells where its toolbox is, so nothing about
a sandbox is kept between calls.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import ClassVar, Final

from differently_core.contract import (
    SUPPORTED,
    AdapterContext,
    Capabilities,
    Capacity,
    CreateRequest,
    Declaration,
    EgressRules,
    ExecEvent,
    Exposure,
    Info,
    Instance,
    Instances,
    InstanceState,
    NotOffered,
    Observations,
    Operation,
    Owner,
    SnapshotInfo,
    SnapshotKind,
    SnapshotRequest,
    Target,
    Unsupported,
    unsupported,
)
from differently_core.errors import (
    InvalidRequest,
    InvalidState,
    NotFound,
    ProviderUnavailable,
    SandboxFailed,
)
from differently_core.model import features
from differently_core.model.exec import ExecRequest

from ...http import parse_endpoint, segment
from ...inside import Inside, ThroughInside
from ...observing import each_observed
from ...polled import Polled
from ...shell_files import Carriers
from ...waiting import as_outage
from . import egress, snapshots
from .api import Api, ttl_minutes
from .config import DaytonaConfig
from .making import Maker
from .toolbox import PORT as TOOLBOX_PORT
from .toolbox import Toolbox
from .wire import SandboxRead, instance

SETTLES_SECONDS: Final = 120.0
"""Beyond the time of a create: what Daytona accepted shows under its name at once."""
PORT_MAX: Final = 65_535
PORT_SECONDS_MAX: Final = 86_400
DELETE_SECONDS: Final = 10.0
"""A delete is answered at once and done later; so long it is watched."""
POLL_SECONDS: Final = 0.25
POLL_SECONDS_MAX: Final = 2.0

_NEVER: Final[Declaration] = {
    Operation.PAUSE: Unsupported("memory_is_not_kept"),
    Operation.RESUME: Unsupported("memory_is_not_kept"),
    Operation.CALL_OFF: Unsupported("memory_is_not_kept"),
    Operation.PORT_REVOKE: Unsupported("addresses_expire"),
    Operation.DISCOVER: Unsupported("nothing_to_discover"),
}


class DaytonaAdapter(ThroughInside, NotOffered):
    kind: ClassVar[str] = "daytona"
    operations: ClassVar[Declaration] = {**dict.fromkeys(Operation, SUPPORTED), **_NEVER}

    def __init__(self, context: AdapterContext) -> None:
        if not isinstance(context.config, DaytonaConfig):
            raise TypeError("a daytona adapter needs a DaytonaConfig")
        self._config = context.config
        self._pool = context.pool
        self._clock = context.clock
        self._api = Api(self._config, context.credential.get("api_key", ""), context.clock, context.untold)
        self._maker = Maker(self._api, self._config, context.clock)

    # The pool.

    def info(self) -> Info:
        seconds = float(self._config.create_seconds)
        return Info(
            kind=self.kind, version="1", trust=None, isolation=self._config.isolation, idempotent_create=True,
            settles_seconds=SETTLES_SECONDS, create_seconds=seconds, description="Daytona.",
        )  # fmt: skip

    def capabilities(self) -> Capabilities:
        told = {
            features.EXEC, features.EXEC_STREAM, features.FILES, features.STOP_START, features.PERSISTENCE_DISK,
            features.SNAPSHOTS_DISK, features.FORK, features.PORTS_EXPOSE, features.EGRESS_CONTROL,
            f"isolation.{self._config.isolation}", *self._config.features,
        }  # fmt: skip
        return Capabilities(
            features=frozenset(told),
            max_cpu_millis=self._config.snapshot_cpu_millis or 0,
            max_memory_mib=self._config.snapshot_memory_mib or 0,
            max_disk_gib=self._config.snapshot_disk_gib or 0,
            regions=(self._config.target,) if self._config.target is not None else (),
        )

    def capacity(self) -> Capacity:
        return Capacity(bounded=False)

    def health(self) -> None:
        as_outage(self._api.look)

    def verify_credential(self) -> None:
        as_outage(self._api.look)

    # Lifecycle.

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        return self._maker.create(request, deadline)

    def get(self, target: Target) -> Instance:
        return instance(self._find(target))

    def list(self, installation: str) -> Instances:
        return [instance(seen) for seen in self._api.of_installation(installation)]

    def observe_many(self, targets: Sequence[Target]) -> Observations:
        return each_observed(self.get, targets)

    def delete(self, target: Target) -> None:
        """Watched until it is gone: Daytona was seen to delete for hours, while the sandbox counts."""
        try:
            seen = self._find(target) if target.ref is not None else self._api.named(target.owner)
        except NotFound as error:
            if error.details.get("foreign"):
                raise
            return
        if seen is None:
            return
        try:
            self._api.delete(seen.id)
        except NotFound:
            return
        except InvalidState as error:
            if error.details.get("reason") != "in_transition":
                raise
        if not self._reached(seen.id, None, DELETE_SECONDS):
            raise ProviderUnavailable("Daytona has not deleted the sandbox yet.")

    def renew(self, target: Target, until: datetime) -> datetime | None:
        """Daytona counts from the creation, and would also shorten; an organization's limit shows in the answer."""
        seen = self._find(target)
        if seen.at is InstanceState.ERROR or seen.created_at is None:
            raise InvalidState("The sandbox has ended; renewing would not bring it back.")
        wanted = min(until, seen.created_at + timedelta(seconds=self._config.lifetime_seconds_max))
        if seen.auto_destroy_at is not None and seen.auto_destroy_at >= wanted:
            return seen.auto_destroy_at
        self._api.set_ttl(seen.id, ttl_minutes(seen.created_at, wanted))
        return self._api.sandbox(seen.id).auto_destroy_at

    # Commands, jobs and files.

    def exec_stream(self, target: Target, request: ExecRequest, quiet_seconds: float) -> Iterator[ExecEvent]:
        """Daytona tells a command's output when it has ended, so a stream is a job that is looked at."""
        return Polled(self._inside(target).jobs, self._clock).stream(target, request, quiet_seconds)

    def _inside(self, target: Target) -> Inside:
        seen = self._running(target)
        place = parse_endpoint((seen.toolbox_proxy_url or "").rstrip("/"), self._config.rules())
        place = dataclasses.replace(place, path=f"{place.path}/{segment(seen.id)}")
        toolbox = Toolbox(self._api.http, place, self._api.headers, self._clock)
        return Inside(toolbox, self._clock, Carriers(toolbox.upload, toolbox.download))

    # Stop and start.

    def stop(self, target: Target, deadline: float) -> Instance:
        return self._moved(target, InstanceState.STOPPED, self._api.stop, deadline)

    def start(self, target: Target, deadline: float) -> Instance:
        return self._moved(target, InstanceState.RUNNING, self._api.start, deadline)

    def _moved(self, target: Target, wanted: InstanceState, move: Callable[[str], None], deadline: float) -> Instance:
        """Asked for once, and watched; a move that is under way already is the one that is watched."""
        seen = self._find(target)
        if seen.desired_state == "destroyed":
            raise InvalidState("The sandbox is being deleted.")
        if seen.at is wanted:
            return instance(seen)
        try:
            move(seen.id)
        except InvalidState as error:
            if error.details.get("reason") != "in_transition":
                raise
        self._reached(seen.id, wanted, deadline)
        made = instance(self._find(target))
        if made.state is InstanceState.ERROR:
            raise SandboxFailed(f"The sandbox could not be moved: {made.message}.", settled=True)
        return made

    def _reached(self, ref: str, wanted: InstanceState | None, seconds: float) -> bool:
        """Whether it came to the wanted state in so many seconds; None is gone."""
        ends = self._clock.monotonic() + seconds
        pause = POLL_SECONDS
        while True:
            try:
                seen = self._api.sandbox(ref)
            except NotFound:
                return wanted is None
            if seen.at in {wanted, InstanceState.ERROR} or (wanted is None and seen.state == "destroyed"):
                return True
            if self._clock.monotonic() + pause >= ends:
                return False
            self._clock.sleep(pause)
            pause = min(POLL_SECONDS_MAX, pause * 1.5)

    # Snapshots.

    def snapshot(self, target: Target, request: SnapshotRequest, deadline: float) -> SnapshotInfo:
        if request.kind is SnapshotKind.MEMORY:
            raise unsupported(self, Operation.SNAPSHOT, self._pool, "no_memory_snapshots")
        seen = self._find(target)
        return snapshots.take(self._api, self._clock, seen.id, target.owner, request, deadline)

    def snapshot_get(self, owner: Owner, ref: str) -> SnapshotInfo:
        return snapshots.observed(self._api, owner, ref)

    def snapshot_delete(self, owner: Owner, ref: str) -> None:
        seen = snapshots.owned(self._api, owner, ref)
        if seen is not None:
            self._api.snapshot_delete(seen.id)

    # Ports and egress.

    def port_expose(self, target: Target, port: int, seconds: int) -> Exposure:
        """A signed address, which works without a header until it expires."""
        if not 1 <= port <= PORT_MAX:
            raise InvalidRequest(f"A port is a number from 1 to {PORT_MAX}.", field="port")
        if port == TOOLBOX_PORT:
            raise InvalidRequest(f"Port {port} belongs to the sandbox's own agent.", field="port")
        seen = self._running(target)
        lasting = min(seconds, PORT_SECONDS_MAX)
        expires = self._clock.now() + timedelta(seconds=lasting)
        return Exposure(port, self._api.preview(seen.id, port, lasting), expires)

    def egress_set(self, target: Target, rules: EgressRules) -> None:
        wanted = egress.body(rules)
        seen = self._running(target)
        self._api.set_network(seen.id, wanted)
        if not egress.in_force(self._api.sandbox(seen.id), wanted):
            raise ProviderUnavailable("Daytona accepted the egress rules and does not have them in force.")

    def close(self) -> None:
        self._api.http.close()

    # One sandbox.

    def _find(self, target: Target) -> SandboxRead:
        if target.ref is None:
            found = self._api.named(target.owner)
            if found is None:
                raise _missing(target)
            return found
        try:
            seen = self._api.sandbox(target.ref)
        except NotFound:
            raise _missing(target) from None
        if seen.state == "destroyed":
            raise _missing(target)
        if seen.owner != target.owner:
            raise _missing(target, foreign=True)
        return seen

    def _running(self, target: Target) -> SandboxRead:
        seen = self._find(target)
        if seen.at is not InstanceState.RUNNING:
            raise InvalidState(f"The sandbox is {seen.at}.")
        return seen


def _missing(target: Target, *, foreign: bool = False) -> NotFound:
    details = {"foreign": True} if foreign else {}
    return NotFound(f"Sandbox {target.owner.sandbox} does not exist at Daytona.", **details)
