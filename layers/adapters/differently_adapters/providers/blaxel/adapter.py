"""The Blaxel adapter: the contract's operations over named sandboxes and the data plane of each.

Every call looks at the sandbox first and checks its labels, which wakes nothing. That same look tells where its data
plane is, so nothing about a sandbox is kept between calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from differently_core.contract import (
    SUPPORTED,
    AdapterContext,
    Capabilities,
    Capacity,
    CreateRequest,
    Declaration,
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
)
from differently_core.model import features
from differently_core.model.pool import Trust

from ...http import parse_endpoint
from ...inside import Inside, ThroughInside
from ...observing import each_observed
from ...shell_files import Carriers
from ...waiting import as_outage
from .api import Api
from .config import BlaxelConfig
from .making import MIB_OF_CPU, Maker
from .process import DataPlane
from .wire import SandboxRead, instance

CREATE_SECONDS: Final = 180.0
SETTLES_SECONDS: Final = 120.0
"""What Blaxel accepted shows under its name at once; a create whose answer was lost is done or given up by then."""
DELETE_SECONDS: Final = 10.0
"""A delete is answered at once and done later; so long it is watched."""
LOOK_SECONDS: Final = 0.25
LOOK_SECONDS_MAX: Final = 2.0

_NEVER: Final[Declaration] = {
    Operation.RENEW: Unsupported("nothing_expires"),
    Operation.STOP: Unsupported("sleeps_by_itself"),
    Operation.START: Unsupported("sleeps_by_itself"),
    Operation.PAUSE: Unsupported("sleeps_by_itself"),
    Operation.RESUME: Unsupported("sleeps_by_itself"),
    Operation.CALL_OFF: Unsupported("sleeps_by_itself"),
    Operation.SNAPSHOT: Unsupported("work_in_progress_there"),
    Operation.SNAPSHOT_GET: Unsupported("work_in_progress_there"),
    Operation.SNAPSHOT_DELETE: Unsupported("work_in_progress_there"),
    Operation.PORT_EXPOSE: Unsupported("no_ports"),
    Operation.PORT_REVOKE: Unsupported("no_ports"),
    Operation.EGRESS_SET: Unsupported("no_egress_control"),
    Operation.DISCOVER: Unsupported("nothing_to_discover"),
}


class BlaxelAdapter(ThroughInside, NotOffered):
    kind: ClassVar[str] = "blaxel"
    operations: ClassVar[Declaration] = {**dict.fromkeys(Operation, SUPPORTED), **_NEVER}

    def __init__(self, context: AdapterContext) -> None:
        if not isinstance(context.config, BlaxelConfig):
            raise TypeError("a blaxel adapter needs a BlaxelConfig")
        self._config = context.config
        self._pool = context.pool
        self._clock = context.clock
        self._api = Api(self._config, context.credential.get("api_key", ""), context.clock)
        self._maker = Maker(self._api, self._config, context.clock)

    # The pool.

    def info(self) -> Info:
        return Info(
            kind=self.kind, version="1", trust=Trust.EXTERNAL, isolation="microvm", idempotent_create=True,
            settles_seconds=SETTLES_SECONDS, create_seconds=CREATE_SECONDS, description="Blaxel.",
        )  # fmt: skip

    def capabilities(self) -> Capabilities:
        told = {features.EXEC, features.EXEC_STREAM, features.FILES, "isolation.microvm", *self._config.features}
        return Capabilities(
            features=frozenset(told),
            max_cpu_millis=self._config.memory_mib_max * 1000 // MIB_OF_CPU,
            max_memory_mib=self._config.memory_mib_max,
            regions=(self._config.region,),
            idles_by_itself=True,
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
        """Watched until it is gone: it is answered before."""
        try:
            seen = self._find(target)
        except NotFound as error:
            if error.details.get("foreign") and target.ref is not None:
                raise
            return
        self._api.delete(seen.name)
        if not self._is_gone(seen.name):
            raise ProviderUnavailable("Blaxel has not deleted the sandbox yet.")

    def _is_gone(self, name: str) -> bool:
        ends = self._clock.monotonic() + DELETE_SECONDS
        pause = LOOK_SECONDS
        while True:
            try:
                self._api.sandbox(name)
            except NotFound:
                return True
            if self._clock.monotonic() + pause >= ends:
                return False
            self._clock.sleep(pause)
            pause = min(LOOK_SECONDS_MAX, pause * 1.5)

    # Commands, jobs and files.

    def _inside(self, target: Target) -> Inside:
        seen = self._running(target)
        place = parse_endpoint(seen.metadata.url or "", self._config.rules())
        plane = DataPlane(self._api.http, place, self._api.headers, self._clock)
        return Inside(plane, self._clock, Carriers(plane.upload, plane.download))

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
    return NotFound(f"Sandbox {target.owner.sandbox} does not exist at Blaxel.", **details)
