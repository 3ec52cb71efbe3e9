"""The Northflank adapter: the contract's operations over the services of one project.

A service's id is made of its owner, so every call finds it without a list, and checks by its description whose it is.
Nothing about a sandbox is kept between calls.
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

from ...inside import Inside, ThroughInside
from ...names import sandbox_name
from ...observing import each_observed
from ...shell_files import Carriers
from ...waiting import Waits, as_outage, begun
from .api import Api
from .config import NorthflankConfig
from .making import Maker
from .shell import NorthflankShell
from .wire import ServiceRead

CREATE_SECONDS: Final = 300.0
"""Images are pulled when a service is made."""
SETTLES_SECONDS: Final = 120.0
DELETE_SECONDS: Final = 20.0
"""So long a service is watched that is being deleted."""

_LOST: Final = Unsupported("the_disk_would_be_lost")
_MEMORY: Final = Unsupported("memory_is_never_kept")
_NO_SNAPSHOTS: Final = Unsupported("no_capture_that_can_be_repeated")
_NO_PORTS: Final = Unsupported("a_port_deploys_anew")
_NEVER: Final[Declaration] = {
    Operation.RENEW: Unsupported("nothing_expires"),
    Operation.STOP: _LOST,
    Operation.START: _LOST,
    Operation.PAUSE: _MEMORY,
    Operation.RESUME: _MEMORY,
    Operation.CALL_OFF: _MEMORY,
    Operation.SNAPSHOT: _NO_SNAPSHOTS,
    Operation.SNAPSHOT_GET: _NO_SNAPSHOTS,
    Operation.SNAPSHOT_DELETE: _NO_SNAPSHOTS,
    Operation.PORT_EXPOSE: _NO_PORTS,
    Operation.PORT_REVOKE: _NO_PORTS,
    Operation.EGRESS_SET: Unsupported("policies_belong_to_the_account"),
    Operation.DISCOVER: Unsupported("nothing_to_discover"),
}


class NorthflankAdapter(ThroughInside, NotOffered):
    kind: ClassVar[str] = "northflank"
    operations: ClassVar[Declaration] = {**dict.fromkeys(Operation, SUPPORTED), **_NEVER}

    def __init__(self, context: AdapterContext) -> None:
        if not isinstance(context.config, NorthflankConfig):
            raise TypeError("a northflank adapter needs a NorthflankConfig")
        self._config = context.config
        self._pool = context.pool
        self._clock = context.clock
        token = context.credential.get("token", "").strip()
        self._api = Api(self._config, token, context.clock, context.untold)
        self._maker = Maker(self._api, self._config, context.clock)

    # The pool.

    def info(self) -> Info:
        return Info(
            kind=self.kind, version="1", trust=Trust.EXTERNAL, isolation="container", idempotent_create=True,
            settles_seconds=SETTLES_SECONDS, create_seconds=CREATE_SECONDS, description="Northflank services.",
        )  # fmt: skip

    def capabilities(self) -> Capabilities:
        told = {features.EXEC, features.EXEC_STREAM, features.FILES, *self._config.features}
        return Capabilities(
            features=frozenset(told),
            max_cpu_millis=max(plan.cpu_millis for plan in self._config.plans),
            max_memory_mib=max(plan.memory_mib for plan in self._config.plans),
            max_disk_gib=(self._config.ephemeral_storage_mib or 0) // 1024,
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
        return self._find(target).instance()

    def list(self, installation: str) -> Instances:
        return [seen.instance() for seen in self._api.of_installation(installation)]

    def observe_many(self, targets: Sequence[Target]) -> Observations:
        return each_observed(self.get, targets)

    def delete(self, target: Target) -> None:
        """Done when Northflank no longer has it."""
        waits = Waits(self._clock, self._clock.monotonic() + DELETE_SECONDS)
        try:
            ref = self._find(target).id
        except NotFound as error:
            if error.details.get("foreign") and target.ref is not None:
                raise
            return
        self._api.delete(ref)
        while True:
            try:
                with begun():
                    self._find(Target(target.owner, ref))
            except NotFound:
                return
            if not waits.again():
                raise ProviderUnavailable("Northflank has not deleted the service yet.")

    # Commands, jobs and files.

    def _inside(self, target: Target) -> Inside:
        shell = NorthflankShell(self._api, self._running(target).id, self._clock)
        return Inside(shell, self._clock, Carriers(upload=shell.upload))

    def close(self) -> None:
        self._api.http.close()

    # One service.

    def _find(self, target: Target) -> ServiceRead:
        try:
            seen = self._api.service(target.ref or sandbox_name(target.owner))
        except NotFound:
            raise _missing(target) from None
        if seen.owner != target.owner:
            raise _missing(target, foreign=True)
        return seen

    def _running(self, target: Target) -> ServiceRead:
        seen = self._find(target)
        if seen.at is not InstanceState.RUNNING:
            raise InvalidState(f"The sandbox is {seen.at}.")
        return seen


def _missing(target: Target, *, foreign: bool = False) -> NotFound:
    details = {"foreign": True} if foreign else {}
    return NotFound(f"Sandbox {target.owner.sandbox} does not exist at Northflank.", **details)
