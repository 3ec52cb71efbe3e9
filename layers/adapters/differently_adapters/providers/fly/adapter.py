"""The Fly adapter: the contract's operations over the machines of one app.

Every call looks at the machine first and checks its metadata; nothing about a sandbox is kept between calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Final

from differently_core.contract import (
    SUPPORTED,
    AdapterContext,
    Capabilities,
    Capacity,
    CommandResult,
    CreateRequest,
    Declaration,
    ExecEvent,
    Info,
    Instance,
    Instances,
    InstanceState,
    NotOffered,
    Observations,
    Operation,
    Target,
    Unsupported,
)
from differently_core.errors import (
    InvalidState,
    NotFound,
    ProviderUnavailable,
    SandboxFailed,
)
from differently_core.model import features
from differently_core.model.exec import ExecRequest
from differently_core.model.pool import Trust

from ...inside import Inside, ThroughInside
from ...observing import each_observed
from ...polled import Polled
from ...shell_files import Carriers
from ...waiting import as_outage
from .api import Api
from .config import FlyConfig
from .machine import Machine
from .making import Maker
from .wire import MachineRead, instance

CREATE_SECONDS: Final = 180.0
SETTLES_SECONDS: Final = 120.0
"""A machine shows in lists when its create is answered; one whose answer was lost is made or given up by then."""
DELETE_SECONDS: Final = 10.0
"""A machine is destroyed at once, mostly; so long it is watched."""
LOOK_SECONDS: Final = 0.25
LOOK_SECONDS_MAX: Final = 2.0

_NEVER: Final[Declaration] = {
    Operation.RENEW: Unsupported("nothing_expires"),
    Operation.PAUSE: Unsupported("resume_may_be_a_cold_start"),
    Operation.RESUME: Unsupported("resume_may_be_a_cold_start"),
    Operation.CALL_OFF: Unsupported("resume_may_be_a_cold_start"),
    Operation.SNAPSHOT: Unsupported("only_of_volumes"),
    Operation.SNAPSHOT_GET: Unsupported("only_of_volumes"),
    Operation.SNAPSHOT_DELETE: Unsupported("only_of_volumes"),
    Operation.PORT_EXPOSE: Unsupported("addresses_are_of_apps"),
    Operation.PORT_REVOKE: Unsupported("addresses_are_of_apps"),
    Operation.EGRESS_SET: Unsupported("no_egress_control"),
    Operation.DISCOVER: Unsupported("nothing_to_discover"),
}


class FlyAdapter(ThroughInside, NotOffered):
    kind: ClassVar[str] = "fly"
    operations: ClassVar[Declaration] = {**dict.fromkeys(Operation, SUPPORTED), **_NEVER}

    def __init__(self, context: AdapterContext) -> None:
        if not isinstance(context.config, FlyConfig):
            raise TypeError("a fly adapter needs a FlyConfig")
        self._config = context.config
        self._pool = context.pool
        self._clock = context.clock
        self._api = Api(self._config, context.credential.get("token", ""), context.clock)
        self._maker = Maker(self._api, self._config, context.clock)

    # The pool.

    def info(self) -> Info:
        return Info(
            kind=self.kind, version="1", trust=Trust.EXTERNAL, isolation="microvm", idempotent_create=True,
            settles_seconds=SETTLES_SECONDS, create_seconds=CREATE_SECONDS, description="Fly Machines.",
        )  # fmt: skip

    def capabilities(self) -> Capabilities:
        told = {
            features.EXEC, features.EXEC_STREAM, features.FILES, features.STOP_START, features.PERSISTENCE_DISK,
            "isolation.microvm", *self._config.features,
        }  # fmt: skip
        return Capabilities(
            features=frozenset(told),
            max_cpu_millis=self._config.cpus_max * 1000,
            max_memory_mib=self._config.memory_mib_max,
            regions=(self._config.region,) if self._config.region is not None else (),
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
        if target.ref is None:
            for seen in self._api.owned(target.owner):
                self._destroyed(seen.id)
            return
        try:
            seen = self._find(target)
        except NotFound as error:
            if error.details.get("foreign"):
                raise
            return
        self._destroyed(seen.id)

    def _destroyed(self, ref: str) -> None:
        self._api.delete(ref)
        if not self._reached(ref, None, DELETE_SECONDS):
            raise ProviderUnavailable("Fly has not destroyed the machine yet.")

    # Commands, jobs and files.

    def exec(self, target: Target, request: ExecRequest, output_bytes_max: int) -> CommandResult:
        """In one call if it cannot take long."""
        inside = self._inside(target)
        if request.timeout_seconds <= self._config.direct_seconds_max:
            return inside.commands.exec(request, output_bytes_max)
        return Polled(inside.jobs, self._clock).exec(target, request, output_bytes_max)

    def exec_stream(self, target: Target, request: ExecRequest, quiet_seconds: float) -> Iterator[ExecEvent]:
        return Polled(self._inside(target).jobs, self._clock).stream(target, request, quiet_seconds)

    def _inside(self, target: Target) -> Inside:
        machine = Machine(self._api, self._running(target).id)
        return Inside(machine, self._clock, Carriers(upload=machine.upload))

    # Stop and start. The disk is kept because the machine was made so.

    def stop(self, target: Target, deadline: float) -> Instance:
        return self._moved(target, InstanceState.STOPPED, self._api.stop, deadline)

    def start(self, target: Target, deadline: float) -> Instance:
        return self._moved(target, InstanceState.RUNNING, self._api.start, deadline)

    def _moved(self, target: Target, wanted: InstanceState, move: Callable[[str], None], deadline: float) -> Instance:
        seen = self._find(target)
        if seen.state == "destroying":
            raise InvalidState("The machine is being destroyed.")
        if seen.at is wanted:
            return instance(seen)
        move(seen.id)
        self._reached(seen.id, wanted, deadline)
        made = instance(self._find(target))
        if made.state is InstanceState.ERROR:
            raise SandboxFailed(f"The machine could not be moved: {made.message}.", settled=True)
        return made

    def _reached(self, ref: str, wanted: InstanceState | None, seconds: float) -> bool:
        """Whether it came to the wanted state in so many seconds; None is gone."""
        ends = self._clock.monotonic() + seconds
        pause = LOOK_SECONDS
        while True:
            try:
                seen = self._api.machine(ref)
            except NotFound:
                return wanted is None
            if wanted is not None and seen.at in {wanted, InstanceState.ERROR}:
                return True
            if self._clock.monotonic() + pause >= ends:
                return False
            self._clock.sleep(pause)
            pause = min(LOOK_SECONDS_MAX, pause * 1.5)

    def close(self) -> None:
        self._api.http.close()

    # One sandbox.

    def _find(self, target: Target) -> MachineRead:
        if target.ref is None:
            found = self._api.owned(target.owner)
            if not found:
                raise _missing(target)
            return found[0]
        try:
            seen = self._api.machine(target.ref)
        except NotFound:
            raise _missing(target) from None
        if seen.owner != target.owner:
            raise _missing(target, foreign=True)
        return seen

    def _running(self, target: Target) -> MachineRead:
        seen = self._find(target)
        if seen.at is not InstanceState.RUNNING:
            raise InvalidState(f"The sandbox is {seen.at}.")
        return seen


def _missing(target: Target, *, foreign: bool = False) -> NotFound:
    details = {"foreign": True} if foreign else {}
    return NotFound(f"Sandbox {target.owner.sandbox} does not exist at Fly.", **details)
