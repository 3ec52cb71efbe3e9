"""The CubeSandbox adapter: the contract's operations over CubeAPI and the agent in each sandbox.

Every call looks at the sandbox first and checks its metadata; nothing about a sandbox is kept between calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import ClassVar, Final

from differently_core.contract import (
    SUPPORTED,
    AdapterContext,
    Capabilities,
    Capacity,
    Catalog,
    CreateRequest,
    Declaration,
    Exposure,
    Info,
    Instance,
    Instances,
    InstanceState,
    NotOffered,
    Observations,
    Operation,
    Owner,
    Progress,
    SnapshotInfo,
    SnapshotRequest,
    Supported,
    Target,
    Transition,
    Transitioned,
    Unsupported,
    unsupported,
)
from differently_core.errors import BackendError, InvalidRequest, InvalidState, NotFound
from differently_core.model import features

from ... import envd
from ...inside import Inside, ThroughInside
from ...observing import each_observed
from ...shell_files import Carriers
from ...waiting import Waits, as_outage, begun
from . import snapshots
from .api import Api
from .config import CubeSandboxConfig
from .making import Maker
from .shell import CubeShell
from .wire import SandboxRead

CREATE_SECONDS: Final = 90.0
SETTLES_SECONDS: Final = 120.0
"""CubeAPI gives a create thirty seconds and then goes on without whoever asked."""
PORT_MAX: Final = 65_535
RESUMED_SECONDS: Final = 3_600
"""Asked for at a resume; newer releases only ever extend with it."""

_NEVER: Final[Declaration] = {
    Operation.STOP: Unsupported("pauses_instead"),
    Operation.START: Unsupported("pauses_instead"),
    Operation.CALL_OFF: Unsupported("pause_cannot_be_called_off"),
    Operation.PORT_REVOKE: Unsupported("addresses_are_permanent"),
    Operation.EGRESS_SET: Unsupported("rules_cannot_be_read_back"),
}


def declared(config: CubeSandboxConfig) -> Declaration:
    """What a pool with this configuration offers."""
    entries: dict[Operation, Supported | Unsupported] = {**dict.fromkeys(Operation, SUPPORTED), **_NEVER}
    if not config.public_ports:
        entries[Operation.PORT_EXPOSE] = Unsupported("ports_are_closed")
    if config.legacy:
        kept = (Operation.SNAPSHOT, Operation.SNAPSHOT_GET, Operation.SNAPSHOT_DELETE)
        entries.update(dict.fromkeys(kept, Unsupported("snapshots_cannot_be_listed")))
    return entries


class CubeSandboxAdapter(ThroughInside, NotOffered):
    kind: ClassVar[str] = "cubesandbox"
    operations: ClassVar[Declaration] = {**dict.fromkeys(Operation, SUPPORTED), **_NEVER}
    """Of the kind; a pool's own declaration depends on its configuration and takes this one's place."""

    def __init__(self, context: AdapterContext) -> None:
        if not isinstance(context.config, CubeSandboxConfig):
            raise TypeError("a cubesandbox adapter needs a CubeSandboxConfig")
        self._config = context.config
        self._pool = context.pool
        self._clock = context.clock
        self._api = Api(self._config, context.credential.get("api_key", "").strip(), context.clock, context.untold)
        self._maker = Maker(self._api, self._config, context.clock, self._shell)
        vars(self)["operations"] = declared(self._config)

    # The pool.

    def info(self) -> Info:
        return Info(
            kind=self.kind, version="", trust=None, isolation="microvm", idempotent_create=False,
            settles_seconds=SETTLES_SECONDS, create_seconds=CREATE_SECONDS,
            description=f"CubeSandbox under {self._config.domain}.",
        )  # fmt: skip

    def capabilities(self) -> Capabilities:
        told = {
            features.EXEC, features.EXEC_STREAM, features.FILES, features.PAUSE_RESUME, "isolation.microvm",
            *self._config.features,
        }  # fmt: skip
        if not self._config.legacy:
            told |= {features.SNAPSHOTS_MEMORY, features.FORK}
        if self._config.public_ports:
            told |= {features.PORTS_EXPOSE}
        return Capabilities(
            features=frozenset(told), max_cpu_millis=self._config.template_cpu_millis or 0,
            max_memory_mib=self._config.template_memory_mib or 0, max_disk_gib=self._config.template_disk_gib or 0,
        )  # fmt: skip

    def capacity(self) -> Capacity:
        return Capacity(bounded=False)

    def health(self) -> None:
        as_outage(self._api.look)

    def verify_credential(self) -> None:
        as_outage(self._api.look)

    def discover(self) -> Catalog:
        names = {seen.template_id: ", ".join(seen.names or seen.aliases or ()) for seen in self._api.templates()}
        return Catalog(templates=names)

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
        if target.ref is None:
            for seen in self._api.owned(target.owner):
                self._api.delete(seen.sandbox_id)
            return
        try:
            found = self._api.sandbox(target.ref)
        except NotFound:
            return
        self._api.delete(_checked(found, target).sandbox_id)

    def renew(self, target: Target, until: datetime) -> datetime | None:
        """CubeSandbox counts from now and would also shorten; where the end is now is read back."""
        seen = self._running(target)
        if seen.expires_at is not None and seen.expires_at >= until:
            return seen.expires_at
        self._api.set_timeout(seen.sandbox_id, max(1, math.floor((until - self._clock.now()).total_seconds())))
        with begun():
            return self._api.sandbox(seen.sandbox_id).expires_at

    # Commands, jobs and files.

    def _inside(self, target: Target) -> Inside:
        shell = self._shell(self._running(target))
        return Inside(shell, self._clock, Carriers(shell.upload, shell.download))

    def _shell(self, seen: SandboxRead) -> CubeShell:
        """Without the pool's key: what it is sent to belongs to whoever is root in the sandbox."""
        headers = {"host": self._config.host(seen.sandbox_id, envd.PORT)} if self._config.proxy_url else {}
        place = self._config.proxy(seen.sandbox_id, envd.PORT)
        return CubeShell(
            envd.Envd(self._api.http, place, headers, seen.envd_access_token, self._clock, self._config.user)
        )

    # Pause and resume. CubeSandbox has no other stop.

    def pause(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        """Accepted first and done later. While it is under way some releases tell the sandbox as running."""
        waits = Waits(self._clock, self._clock.monotonic() + deadline)
        seen = self._unnamed(target, transition)
        refused = False
        if seen.at is InstanceState.RUNNING and not transition.observe_only:
            refused = _is_refused(lambda: self._api.pause(seen.sandbox_id))
        with begun():
            while True:
                now = self._find(Target(target.owner, seen.sandbox_id))
                if now.at is InstanceState.PAUSED:
                    return Transitioned(Progress.DONE, now.instance())
                if refused and now.at is InstanceState.RUNNING:
                    return Transitioned(Progress.FAILED, now.instance(), "CubeSandbox did not pause the sandbox.")
                if transition.observe_only or not waits.again():
                    return Transitioned(Progress.UNDERWAY, now.instance())

    def resume(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        """Answered when it is done."""
        seen = self._unnamed(target, transition)
        over = transition.observe_only
        if seen.at is InstanceState.PAUSED and not transition.observe_only:
            over = _is_refused(lambda: self._api.connect(seen.sandbox_id, RESUMED_SECONDS))
            with begun():
                seen = self._find(Target(target.owner, seen.sandbox_id))
        match seen.at:
            case InstanceState.RUNNING:
                return Transitioned(Progress.DONE, seen.instance())
            case InstanceState.PAUSED if over:
                return Transitioned(Progress.FAILED, seen.instance(), "CubeSandbox did not resume the sandbox.")
            case _:
                return Transitioned(Progress.UNDERWAY, seen.instance())

    def _unnamed(self, target: Target, transition: Transition) -> SandboxRead:
        seen = self._find(target)
        if transition.incarnation:
            raise InvalidState("CubeSandbox does not tell incarnations apart.")
        return seen

    # Snapshots.

    def snapshot(self, target: Target, request: SnapshotRequest, deadline: float) -> SnapshotInfo:
        self._need(Operation.SNAPSHOT)
        seen = self._running(target)
        return snapshots.take(self._api, seen.sandbox_id, target.owner, request, deadline)

    def snapshot_get(self, owner: Owner, ref: str) -> SnapshotInfo:
        self._need(Operation.SNAPSHOT_GET)
        seen = snapshots.owned(self._api, owner, ref)
        if seen is None:
            raise NotFound("The snapshot does not exist at CubeSandbox.")
        return snapshots.shown(seen, owner)

    def snapshot_delete(self, owner: Owner, ref: str) -> None:
        self._need(Operation.SNAPSHOT_DELETE)
        seen = snapshots.owned(self._api, owner, ref)
        if seen is not None:
            self._api.snapshot_delete(seen.snapshot_id)

    # Ports and egress.

    def port_expose(self, target: Target, port: int, seconds: int) -> Exposure:
        """An address that is there anyhow: CubeProxy serves every port of a sandbox."""
        self._need(Operation.PORT_EXPOSE)
        if not 1 <= port <= PORT_MAX:
            raise InvalidRequest(f"A port is a number from 1 to {PORT_MAX}.", field="port")
        if port == envd.PORT:
            raise InvalidRequest(f"Port {port} belongs to the sandbox's own agent.", field="port")
        return Exposure(port, self._config.port_url(self._running(target).sandbox_id, port))

    def close(self) -> None:
        self._api.http.close()

    # One sandbox.

    def _need(self, operation: Operation) -> None:
        if isinstance(self.operations[operation], Unsupported):
            raise unsupported(self, operation, self._pool)

    def _find(self, target: Target) -> SandboxRead:
        ref = target.ref
        if ref is None:
            found = self._api.owned(target.owner)
            if not found:
                raise _missing(target)
            ref = found[0].sandbox_id  # a list tells no access token
        try:
            return _checked(self._api.sandbox(ref), target)
        except NotFound:
            raise _missing(target) from None

    def _running(self, target: Target) -> SandboxRead:
        seen = self._find(target)
        if seen.at is not InstanceState.RUNNING:
            raise InvalidState(f"The sandbox is {seen.at}.")
        return seen


def _is_refused(ask: Callable[[], None]) -> bool:
    """Ask for a change of state, once, and whether the answer says that nothing comes of it.

    Raises what certainly had no effect; an answer that was lost tells nothing, and what it came to is seen by looking.
    """
    try:
        ask()
    except InvalidState:
        return True
    except BackendError as error:
        if error.settled:
            raise
        return error.details.get("status") == HTTPStatus.INTERNAL_SERVER_ERROR
    return False


def _checked(seen: SandboxRead, target: Target) -> SandboxRead:
    if seen.owner != target.owner:
        raise _missing(target)
    return seen


def _missing(target: Target) -> NotFound:
    return NotFound(f"Sandbox {target.owner.sandbox} does not exist at CubeSandbox.")
