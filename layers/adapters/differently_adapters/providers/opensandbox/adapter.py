"""The OpenSandbox adapter: the contract's operations over the lifecycle server and the execd of each sandbox.

Every call looks at the sandbox first and checks its metadata, so a filter or a cache of theirs never decides whose it
is. Addresses are asked for anew each time: one that was kept could by now belong to another sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import ClassVar, Final, NoReturn, TypeVar

from differently_core.contract import (
    SUPPORTED,
    AdapterContext,
    Capabilities,
    Capacity,
    Catalog,
    CreateRequest,
    Declaration,
    EgressRules,
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
    SnapshotKind,
    SnapshotRequest,
    Supported,
    Target,
    Transition,
    Transitioned,
    Unsupported,
    unsupported,
)
from differently_core.errors import (
    BackendError,
    DifferentlyError,
    InvalidRequest,
    InvalidState,
    NotFound,
    ProviderUnavailable,
    SandboxFailed,
    UnsupportedOperation,
)
from differently_core.model import features
from differently_core.model.resources import Size
from differently_core.runtime.ids import SystemIds

from ...execd import PORT as EXECD_PORT
from ...execd import Execd, Place, ThroughExecd
from ...observing import each_observed
from ...peers import told_apart
from ...recent import Recent
from ...waiting import begun
from . import egress, snapshots
from .config import Egress, OpenSandboxConfig, Runtime
from .lifecycle import Lifecycle
from .making import ANSWER_SECONDS, Maker
from .moving import Mover
from .server import Server
from .states import instance, phase
from .wire import SandboxRead

SETTLES_SECONDS: Final = 60.0
"""Beyond the server's own limit for a create: a gateway may have given up on it, and lists lag behind."""
PROBE_CPU_MILLIS: Final = 500
PROBE_MEMORY_MIB: Final = 256
EGRESS_PORT: Final = 18080
PORT_MAX: Final = 65_535
PLACES_MAX: Final = 1_024
T = TypeVar("T")

_ONLY_KUBERNETES: Final = (Operation.STOP, Operation.START)
_ONLY_DOCKER: Final = (Operation.PAUSE, Operation.RESUME)
_NEVER: Final[Declaration] = {
    Operation.CALL_OFF: Unsupported("pause_is_immediate"),
    Operation.PORT_REVOKE: Unsupported("addresses_expire"),
}


def declared(config: OpenSandboxConfig) -> Declaration:
    """What a pool with this configuration offers."""
    entries: dict[Operation, Supported | Unsupported] = {**dict.fromkeys(Operation, SUPPORTED), **_NEVER}
    if config.runtime is Runtime.DOCKER:
        entries.update(dict.fromkeys(_ONLY_KUBERNETES, Unsupported("docker_pauses_instead")))
    else:
        entries.update(dict.fromkeys(_ONLY_DOCKER, Unsupported("memory_is_not_kept")))
    if config.egress is Egress.OPEN:
        entries[Operation.EGRESS_SET] = Unsupported("no_egress_control")
    if config.ports != "signed":
        entries[Operation.PORT_EXPOSE] = Unsupported("no_signed_ports")
    return entries


class OpenSandboxAdapter(ThroughExecd, NotOffered):
    kind: ClassVar[str] = "opensandbox"
    operations: ClassVar[Declaration] = {**dict.fromkeys(Operation, SUPPORTED), **_NEVER}
    """Of the kind; a pool's own declaration depends on its configuration and takes this one's place."""

    def __init__(self, context: AdapterContext) -> None:
        if not isinstance(context.config, OpenSandboxConfig):
            raise TypeError("an opensandbox adapter needs an OpenSandboxConfig")
        self._config = context.config
        self._pool = context.pool
        self._installation = context.installation
        self._clock = context.clock
        self._ids = SystemIds(context.clock)
        api_key = context.credential.get("api_key", "").strip()
        self._api = Lifecycle(self._config, api_key, context.clock, context.untold)
        self._places: Recent[Place] = Recent(PLACES_MAX)
        self._maker = Maker(self._api, self._config, context.clock, self._working)
        self._server = Server(self._api, context.clock)
        self._mover = Mover(
            self._api, context.clock, self._config.runtime, self._find, self._runs_commands, self._never_paused
        )  # fmt: skip
        vars(self)["operations"] = declared(self._config)

    # The pool.

    def info(self) -> Info:
        seconds = self._config.create_seconds
        return Info(
            kind=self.kind, version=self._server.version, trust=None, isolation=self._config.isolation,
            idempotent_create=False, settles_seconds=seconds + SETTLES_SECONDS,
            create_seconds=seconds + 2 * ANSWER_SECONDS, warnings=self._server.warnings(),
            description=f"OpenSandbox {self._server.version} on the {self._config.runtime} runtime.".replace("  ", " "),
            backend=self._api.base,
        )  # fmt: skip

    def capabilities(self) -> Capabilities:
        told = {
            features.EXEC, features.EXEC_STREAM, features.FILES, features.SNAPSHOTS_DISK, features.FORK,
            f"isolation.{self._config.isolation}", *self._config.features,
        }  # fmt: skip
        if self._config.runtime is Runtime.DOCKER:
            told |= {features.PAUSE_RESUME}
        else:
            told |= {features.STOP_START, features.PERSISTENCE_DISK}
        if self._config.ports == "signed":
            told |= {features.PORTS_EXPOSE}
        if self._config.egress is not Egress.OPEN:
            told |= {features.EGRESS_CONTROL}
        if self._config.template_id is not None or self._config.pool_ref is not None:
            told -= {features.SNAPSHOTS_DISK, features.FORK}
        return Capabilities(
            features=frozenset(told),
            max_cpu_millis=self._config.pool_cpu_millis or 0,
            max_memory_mib=self._config.pool_memory_mib or 0,
            templates=(self._config.template_id,) if self._config.template_id is not None else (),
        )

    def capacity(self) -> Capacity:
        """OpenSandbox tells room only of its pools of warm pods."""
        name = self._config.pool_ref
        if name is None:
            return Capacity(bounded=False)
        pools = self._api.pools() if name == "*" else [self._api.pool(name)]
        if any(pool.status is None for pool in pools):
            return Capacity(bounded=False)
        free = sum(max(0, p.capacity_spec.pool_max - p.status.allocated) for p in pools if p.status is not None)
        cpu, memory = self._config.pool_cpu_millis, self._config.pool_memory_mib
        if free and (cpu is None or memory is None):
            return Capacity(bounded=False)  # there is room, and how much of what is not known
        return Capacity(
            bounded=True, free_cpu_millis=free * (cpu or 0), free_memory_mib=free * (memory or 0),
            largest_free_cpu_millis=(cpu or 0) if free else 0, largest_free_memory_mib=(memory or 0) if free else 0,
        )  # fmt: skip

    def health(self) -> None:
        """The first one also tries the egress rules, if the pool has any and made no sandbox yet."""
        self._as_outage(self._api.look)
        self._server.look()
        if not self._maker.egress_proved:
            self._as_outage(self._try_egress)

    def _try_egress(self) -> None:
        owner = Owner(self._installation, self._ids.new("probe").lower())
        size = Size(sandboxes=1, cpu_millis=PROBE_CPU_MILLIS, memory_mib=PROBE_MEMORY_MIB, disk_gib=0)
        request = CreateRequest(owner, "", "", "", None, size, ttl_seconds=60)
        try:
            self._maker.create(request, self.info().create_seconds)
        finally:
            self.delete(Target(owner))
        if not self._maker.egress_proved:
            raise ProviderUnavailable("No sandbox came up in which the egress rules could be tried.", settled=True)

    def verify_credential(self) -> None:
        self._as_outage(self._api.look)

    def discover(self) -> Catalog:
        """Templates and pools of warm pods, where the runtime has them."""
        templates = {item.id or item.name or "": item.image or "" for item in self._if_offered(self._api.templates)}
        pools = {f"pool/{pool.name}": "a pool of warm pods" for pool in self._if_offered(self._api.pools)}
        return Catalog(templates={name: text for name, text in {**templates, **pools}.items() if name})

    def _if_offered(self, ask: Callable[[], list[T]]) -> list[T]:
        try:
            return ask()
        except UnsupportedOperation:
            return []

    def _as_outage(self, ask: Callable[[], None]) -> None:
        try:
            ask()
        except BackendError:
            raise
        except DifferentlyError as error:  # a server that has no list of sandboxes is none of theirs
            raise ProviderUnavailable(error.message, settled=True, **error.details) from None

    # Lifecycle.

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        return self._maker.create(request, deadline)

    def _working(self, seen: SandboxRead) -> Execd | None:
        """Its execd, if commands run in it."""
        try:
            execd = self._execd(seen)
            execd.ping()
            self._places.put(seen.id, execd.place())
        except DifferentlyError:
            return None
        return execd

    def _runs_commands(self, seen: SandboxRead) -> bool:
        return self._working(seen) is not None

    def get(self, target: Target) -> Instance:
        return self._observed(self._find(target))

    def list(self, installation: str) -> Instances:
        return [self._observed(seen) for seen in self._api.of_installation(installation)]

    def observe_many(self, targets: Sequence[Target]) -> Observations:
        return each_observed(self.get, targets)

    def delete(self, target: Target) -> None:
        self._maker.call_off(target.owner)
        if target.ref is None:
            for seen in self._api.owned(target.owner):
                self._api.delete(seen.id)
            return
        try:
            seen = self._by_ref(target)
        except NotFound:
            return
        self._check(seen, target)
        self._api.delete(seen.id)
        self._places.forget(seen.id)

    def renew(self, target: Target, until: datetime) -> datetime | None:
        seen = self._find(target)
        if self._observed(seen).state is InstanceState.ERROR:
            raise InvalidState(
                "The sandbox has ended; renewing would not bring it back."
            )  # Docker takes it all the same
        return self._api.renew(seen.id, until) or until

    # Commands, jobs and files: see ThroughExecd.

    def _reach(self, target: Target) -> Execd:
        seen = self._find(target)
        state = self._observed(seen).state
        if state is not InstanceState.RUNNING:
            raise InvalidState(f"The sandbox is {state}.")
        execd = self._execd(seen)
        self._places.put(seen.id, execd.place())
        return execd

    def _execd(self, seen: SandboxRead) -> Execd:
        http = self._api.reach(seen.id, EXECD_PORT)
        return Execd(http, self._clock, self._places.get(seen.id), self._config.line_endings)

    # Stop and pause: one route of theirs, which means the one or the other.

    def stop(self, target: Target, deadline: float) -> Instance:
        self._need(Operation.STOP)
        ends = self._clock.monotonic() + deadline
        seen = self._find(target)
        if self._observed(seen).state is InstanceState.RUNNING:
            seen = self._mover.paused(target, seen, ends)
        return self._observed(seen)

    def start(self, target: Target, deadline: float) -> Instance:
        self._need(Operation.START)
        made = self._mover.resumed(target, deadline)
        if made.state is InstanceState.RUNNING:
            with begun():  # its pod is a new one, and so is what holds its egress
                execd = self._reach(Target(target.owner, made.ref))
                egress.check_restarted(self._api, self._config, made.ref, execd)
        return made

    def pause(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        self._need(Operation.PAUSE)
        ends = self._clock.monotonic() + deadline
        seen = self._incarnation(target, transition)
        if not transition.observe_only and self._observed(seen).state is InstanceState.RUNNING:
            try:
                seen = self._mover.paused(target, seen, ends)
            except SandboxFailed as error:
                return Transitioned(Progress.FAILED, self.get(target), error.message)
        return self._transitioned(seen, InstanceState.PAUSED)

    def resume(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        self._need(Operation.RESUME)
        seen = self._incarnation(target, transition)
        if transition.observe_only:
            return self._transitioned(seen, InstanceState.RUNNING)
        made = self._mover.resumed(target, deadline)
        return Transitioned(Progress.DONE if made.state is InstanceState.RUNNING else Progress.UNDERWAY, made)

    def _incarnation(self, target: Target, transition: Transition) -> SandboxRead:
        seen = self._find(target)
        if transition.incarnation and self._observed(seen).incarnation != transition.incarnation:
            raise InvalidState("The instance is another one than the named incarnation.")
        return seen

    def _transitioned(self, seen: SandboxRead, wanted: InstanceState) -> Transitioned:
        made = self._observed(seen)
        if made.state is wanted:
            return Transitioned(Progress.DONE, made)
        progress = Progress.UNDERWAY if made.state is InstanceState.PENDING else Progress.FAILED
        return Transitioned(progress, made, made.message)

    def _never_paused(self) -> NoReturn:
        operation = Operation.PAUSE if self._config.runtime is Runtime.DOCKER else Operation.STOP
        raise UnsupportedOperation(
            "OpenSandbox accepted to pause the sandbox and never began; its workload provider may not offer it.",
            operation=operation.value, pool=self._pool, adapter=self.kind, reason="pause_never_started",
        )  # fmt: skip

    # Snapshots.

    def snapshot(self, target: Target, request: SnapshotRequest, deadline: float) -> SnapshotInfo:
        if request.kind is SnapshotKind.MEMORY and features.SNAPSHOTS_MEMORY not in self._config.features:
            raise unsupported(self, Operation.SNAPSHOT, self._pool, "no_memory_snapshots")
        try:
            source = self._find(target)
        except NotFound:
            left = snapshots.left_of(self._api, target, request)
            if left is None:
                raise
            return left
        return snapshots.take(self._api, self._clock, source, target.owner, request, deadline)

    def snapshot_get(self, owner: Owner, ref: str) -> SnapshotInfo:
        return snapshots.observed(self._api.snapshot_get(ref), owner)

    def snapshot_delete(self, owner: Owner, ref: str) -> None:
        try:
            snapshots.observed(self._api.snapshot_get(ref), owner)
        except NotFound as error:
            if error.details.get("foreign"):
                raise
            return
        self._api.snapshot_delete(ref)

    # Ports and egress.

    def port_expose(self, target: Target, port: int, seconds: int) -> Exposure:
        """A signed address of the gateway. One that needs our key or a header would be of no use, or too much."""
        self._need(Operation.PORT_EXPOSE)
        if not 1 <= port <= PORT_MAX:
            raise InvalidRequest(f"A port is a number from 1 to {PORT_MAX}.", field="port")
        if port in {EXECD_PORT, EGRESS_PORT}:
            raise InvalidRequest(f"Port {port} belongs to the sandbox's own agent.", field="port")
        seen = self._find(target)
        if self._observed(seen).state is not InstanceState.RUNNING:
            raise InvalidState("Ports are exposed while the sandbox runs.")
        lasting = min(seconds, self._config.port_url_seconds)
        expires = (self._clock.now() + timedelta(seconds=lasting)).replace(microsecond=0)
        found = self._api.signed_endpoint(seen.id, port, expires)
        host, _, path = found.endpoint.partition("/")
        if found.headers or not path or host == self._api.host or "/proxy/" in f"/{path}":
            raise UnsupportedOperation(
                "OpenSandbox's gateway gives no address that can be handed out.",
                operation=Operation.PORT_EXPOSE.value, pool=self._pool, adapter=self.kind, reason="no_signed_ports",
            )  # fmt: skip
        return Exposure(port, f"{self._config.port_scheme}://{found.endpoint}", expires)

    def egress_set(self, target: Target, rules: EgressRules) -> None:
        """In force are the rules given, within the pool's own."""
        self._need(Operation.EGRESS_SET)
        told_apart((*rules.allow, *rules.deny))
        wanted = egress.rules_of(self._config, rules)
        assert wanted is not None
        seen = self._find(target)
        if self._observed(seen).state is not InstanceState.RUNNING:
            raise InvalidState("Egress is set while the sandbox runs.")
        self._api.set_policy(seen.id, egress.body(wanted))
        with begun():
            egress.confirm(self._api, seen.id, wanted)

    def close(self) -> None:
        self._api.close()

    # One sandbox.

    def _find(self, target: Target) -> SandboxRead:
        """The sandbox, checked on itself; without a ref the oldest of its owner, a living one before a leaving one."""
        if target.ref is not None:
            seen = self._by_ref(target)
            self._check(seen, target)
            return seen
        found = self._api.owned(target.owner)
        if not found:
            raise _missing(target)
        return min(found, key=lambda seen: phase(seen) == "stopping")

    def _by_ref(self, target: Target) -> SandboxRead:
        try:
            return self._api.sandbox(target.ref or "")
        except NotFound:
            if self._config.runtime is Runtime.DOCKER:
                raise _missing(target) from None
        # A cache of the Kubernetes runtime was seen to forget what exists. Absence needs a second witness.
        for seen in self._api.owned(target.owner):
            if seen.id == target.ref:
                return seen
        raise _missing(target)

    def _check(self, seen: SandboxRead, target: Target) -> None:
        if seen.owner != target.owner:
            raise _missing(target)

    def _observed(self, seen: SandboxRead) -> Instance:
        return instance(seen, self._config.runtime)

    def _need(self, operation: Operation) -> None:
        if isinstance(self.operations[operation], Unsupported):
            self._refuse(operation)

    def _refuse(self, operation: Operation) -> NoReturn:
        raise unsupported(self, operation, self._pool)


def _missing(target: Target) -> NotFound:
    return NotFound(f"Sandbox {target.owner.sandbox} does not exist in OpenSandbox.")
