"""The Morph adapter: the contract's operations over one API, which also carries commands.

Every call looks at the instance first and checks its metadata. Morph gives no name and no key to a create, so one is
looked for before and after, and of two of one sandbox the older one stays.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar, Final

from pydantic import JsonValue

from differently_core.contract import (
    SUPPORTED,
    AdapterContext,
    Capabilities,
    Capacity,
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
    SnapshotKind,
    SnapshotRequest,
    SnapshotState,
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
)
from differently_core.model import features

from ...inside import Inside, ThroughInside
from ...observing import each_observed
from ...shell_files import Carriers
from ...waiting import Waits, as_outage, begun, ordered_once
from .api import Api
from .config import MorphConfig
from .shell import MorphShell
from .wire import KEY_OPERATION, SNAPSHOT_STATES, InstanceRead, SnapshotRead, labels

CREATE_SECONDS: Final = 120.0
SETTLES_SECONDS: Final = 180.0
SPARE_SECONDS: Final = 300
"""The backend's own timer ends what we forgot; it must not be faster than we are."""
PORT_MAX: Final = 65_535
_NEVER: Final[Declaration] = {
    Operation.STOP: Unsupported("pauses_instead"),
    Operation.START: Unsupported("pauses_instead"),
    Operation.CALL_OFF: Unsupported("pause_cannot_be_called_off"),
    Operation.EGRESS_SET: Unsupported("no_egress_control"),
    Operation.DISCOVER: Unsupported("snapshots_have_no_names"),
}


def declared(config: MorphConfig) -> Declaration:
    """What a pool with this configuration offers."""
    entries: dict[Operation, Supported | Unsupported] = {**dict.fromkeys(Operation, SUPPORTED), **_NEVER}
    if not config.public_ports:
        entries.update(dict.fromkeys((Operation.PORT_EXPOSE, Operation.PORT_REVOKE), Unsupported("ports_are_closed")))
    return entries


class MorphAdapter(ThroughInside, NotOffered):
    kind: ClassVar[str] = "morph"
    operations: ClassVar[Declaration] = {**dict.fromkeys(Operation, SUPPORTED), **_NEVER}
    """Of the kind; a pool's own declaration depends on its configuration and takes this one's place."""

    def __init__(self, context: AdapterContext) -> None:
        if not isinstance(context.config, MorphConfig):
            raise TypeError("a morph adapter needs a MorphConfig")
        self._config = context.config
        self._pool = context.pool
        self._clock = context.clock
        self._api = Api(self._config, context.credential.get("api_key", "").strip(), context.clock, context.untold)
        vars(self)["operations"] = declared(self._config)

    # The pool.

    def info(self) -> Info:
        return Info(
            kind=self.kind, version="", trust=None, isolation="microvm", idempotent_create=False,
            settles_seconds=SETTLES_SECONDS, create_seconds=CREATE_SECONDS, description="Morph Cloud instances.",
        )  # fmt: skip

    def capabilities(self) -> Capabilities:
        told = {
            features.EXEC, features.EXEC_STREAM, features.FILES, features.PAUSE_RESUME, features.SNAPSHOTS_DISK,
            features.SNAPSHOTS_MEMORY, features.FORK, "isolation.microvm", *self._config.features,
        }  # fmt: skip
        if self._config.public_ports:
            told |= {features.PORTS_EXPOSE}
        return Capabilities(
            features=frozenset(told), max_cpu_millis=self._config.snapshot_cpu_millis or 0,
            max_memory_mib=self._config.snapshot_memory_mib or 0, max_disk_gib=self._config.snapshot_disk_gib or 0,
        )  # fmt: skip

    def capacity(self) -> Capacity:
        return Capacity(bounded=False)

    def health(self) -> None:
        as_outage(self._api.look)

    def verify_credential(self) -> None:
        as_outage(self._api.look)

    # Lifecycle.

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        ends = self._clock.monotonic() + deadline
        found = self._api.owned(request.owner)
        if not found and request.from_snapshot is not None:
            self._check_snapshot(request.owner.installation, request.from_snapshot)
        seen = found[0] if found else self._made(request, deadline)
        with begun():
            return self._ready(request, seen, ends)

    def _made(self, request: CreateRequest, deadline: float) -> InstanceRead:
        snapshot = request.from_snapshot or request.image or self._config.snapshot
        try:
            made = self._api.create(
                snapshot, labels(request.owner), request.ttl_seconds + SPARE_SECONDS, max(1.0, deadline - 10.0)
            )
        except NotFound:
            raise InvalidRequest("Morph has no such snapshot to start an instance from.", field="image") from None
        except BackendError as error:
            if error.settled:
                raise
            return self._after_lost_create(request, error)
        with begun():
            return self._only_one(request.owner, made)

    def _after_lost_create(self, request: CreateRequest, error: BackendError) -> InstanceRead:
        """What came of it, if anything can be seen; it is never asked for again here."""
        try:
            found = self._api.owned(request.owner)
        except DifferentlyError:
            found = []
        if found:
            return found[0]
        if request.from_snapshot is not None and "status" in error.details:
            raise SandboxFailed("Morph could not start an instance from the snapshot.") from None
        raise error

    def _only_one(self, owner: Owner, made: InstanceRead) -> InstanceRead:
        """Another create of the same sandbox may have come to light meanwhile: the older one stays."""
        found = self._api.owned(owner)
        for extra in found[1:]:
            self._api.delete(extra.id)
        return found[0] if found else made

    def _ready(self, request: CreateRequest, seen: InstanceRead, ends: float) -> Instance:
        waits = Waits(self._clock, ends)
        while seen.at is InstanceState.PENDING and waits.again():
            seen = self._api.instance(seen.id)
        if seen.owner != request.owner:
            raise ProviderUnavailable("Morph does not keep the metadata that says whose the instance is.")
        if seen.at is InstanceState.ERROR:
            raise SandboxFailed("The instance failed to start.")
        if seen.at is InstanceState.RUNNING:
            MorphShell(self._api, seen.id).store_env(dict(request.env))
        return seen.instance()

    def get(self, target: Target) -> Instance:
        return self._find(target).instance()

    def list(self, installation: str) -> Instances:
        return [seen.instance() for seen in self._api.of_installation(installation)]

    def observe_many(self, targets: Sequence[Target]) -> Observations:
        return each_observed(self.get, targets)

    def delete(self, target: Target) -> None:
        if target.ref is None:
            for seen in self._api.owned(target.owner):
                self._api.delete(seen.id)
            return
        try:
            found = self._api.instance(target.ref)
        except NotFound:
            return
        self._api.delete(_checked(found, target).id)

    def renew(self, target: Target, until: datetime) -> datetime | None:
        """Morph counts from now and would also shorten; where the end is now is read back."""
        seen = self._find(target)
        expires = seen.instance().expires_at
        if expires is None or expires >= until:
            return expires
        self._api.set_ttl(seen.id, max(1, math.floor((until - self._clock.now()).total_seconds())))
        with begun():
            return self._api.instance(seen.id).instance().expires_at

    # Commands, jobs and files.

    def _inside(self, target: Target) -> Inside:
        shell = MorphShell(self._api, self._running(target).id)
        return Inside(shell, self._clock, Carriers(shell.upload))

    # Pause and resume.

    def pause(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        waits = Waits(self._clock, self._clock.monotonic() + deadline)
        seen = self._unnamed(target, transition)
        if transition.observe_only or seen.at is not InstanceState.RUNNING:
            return _stands(seen, InstanceState.PAUSED)
        ordered_once(lambda: self._api.pause(seen.id, deadline))
        return self._followed(target.owner, seen, InstanceState.PAUSED, waits)

    def resume(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        waits = Waits(self._clock, self._clock.monotonic() + deadline)
        seen = self._unnamed(target, transition)
        if transition.observe_only:
            return _stands(seen, InstanceState.RUNNING)
        if seen.at is InstanceState.PAUSED:
            ordered_once(lambda: self._api.resume(seen.id, deadline))
        return self._followed(target.owner, seen, InstanceState.RUNNING, waits)

    def _followed(self, owner: Owner, seen: InstanceRead, wanted: InstanceState, waits: Waits) -> Transitioned:
        """What has begun and went back has failed; what has not begun yet may still."""
        moved = False
        while True:
            with begun():
                now = self._find(Target(owner, seen.id))
            moved = moved or now.at is InstanceState.PENDING
            back = moved and now.at is not InstanceState.PENDING
            if now.at is wanted or now.at is InstanceState.ERROR or back:
                return _stands(now, wanted)
            if not waits.again():
                return Transitioned(Progress.UNDERWAY, now.instance())

    def _unnamed(self, target: Target, transition: Transition) -> InstanceRead:
        seen = self._find(target)
        if transition.incarnation:
            raise InvalidState("Morph does not tell incarnations apart.")
        return seen

    # Snapshots.

    def snapshot(self, target: Target, request: SnapshotRequest, deadline: float) -> SnapshotInfo:
        """One for an operation, by its digest and its metadata; of two the older one."""
        waits = Waits(self._clock, self._clock.monotonic() + deadline)
        source, owner = self._find(target), target.owner
        metadata: dict[str, JsonValue] = {**labels(owner), KEY_OPERATION: request.operation}
        told = f"{owner.installation}\0{owner.sandbox}\0{request.operation}"
        digest = f"differently-{hashlib.sha256(told.encode()).hexdigest()}"
        seen = self._captured(owner, request.operation, digest)
        if seen is None:
            seen = self._capture(source.id, owner, request.operation, digest, metadata, deadline)
        with begun():
            while SNAPSHOT_STATES.get(seen.status) is SnapshotState.CREATING and waits.again():
                seen = self._api.snapshot_get(seen.id)
        return _shown(seen, owner)

    def _capture(
        self, ref: str, owner: Owner, operation: str, digest: str, metadata: dict[str, JsonValue], deadline: float
    ) -> SnapshotRead:
        try:
            return self._api.snapshot(ref, digest, metadata, deadline)
        except BackendError as error:
            if error.settled:
                raise
            found = self._captured(owner, operation, digest)
            if found is None and "status" in error.details:
                raise SandboxFailed("Morph could not capture the instance.", settled=True) from None
            if found is None:
                raise
            return found

    def _captured(self, owner: Owner, operation: str, digest: str) -> SnapshotRead | None:
        found = [
            seen
            for seen in self._api.snapshots({"digest": digest})
            if seen.owner == owner and (seen.metadata or {}).get(KEY_OPERATION) == operation
        ]
        return min(found, key=lambda seen: (str(seen.created), seen.id), default=None)

    def _check_snapshot(self, installation: str, ref: str) -> None:
        """A sandbox may be made from any snapshot of its installation, and from no other."""
        if self._api.snapshot_get(ref).owner.installation != installation:
            raise NotFound("The snapshot does not exist at Morph.", missing="snapshot")

    def snapshot_get(self, owner: Owner, ref: str) -> SnapshotInfo:
        return _shown(self._api.snapshot_get(ref), owner)

    def snapshot_delete(self, owner: Owner, ref: str) -> None:
        try:
            seen = self._api.snapshot_get(ref)
        except NotFound:
            return
        if seen.status not in {"deleting", "deleted"}:
            self._api.snapshot_delete(_shown(seen, owner).ref)

    # Ports and egress.

    def port_expose(self, target: Target, port: int, seconds: int) -> Exposure:
        """An address that lasts until it is revoked; Morph tells it on the instance."""
        self._need_ports(Operation.PORT_EXPOSE)
        if not 1 <= port <= PORT_MAX:
            raise InvalidRequest(f"A port is a number from 1 to {PORT_MAX}.", field="port")
        seen = self._running(target)
        url = _url(seen, port)
        if url is None:
            self._api.expose(seen.id, _name(port), port)
            with begun():
                url = _url(self._find(Target(target.owner, seen.id)), port)
        if url is None:
            raise ProviderUnavailable("Morph exposed the port and does not tell its address.")
        return Exposure(port, url)

    def port_revoke(self, target: Target, port: int) -> None:
        self._need_ports(Operation.PORT_REVOKE)
        self._api.close_port(self._find(target).id, _name(port))

    def _need_ports(self, operation: Operation) -> None:
        if not self._config.public_ports:
            raise unsupported(self, operation, self._pool)

    def close(self) -> None:
        self._api.http.close()

    # One instance.

    def _find(self, target: Target) -> InstanceRead:
        if target.ref is not None:
            try:
                return _checked(self._api.instance(target.ref), target)
            except NotFound:
                raise _missing(target) from None
        found = self._api.owned(target.owner)
        if not found:
            raise _missing(target)
        return found[0]

    def _running(self, target: Target) -> InstanceRead:
        seen = self._find(target)
        if seen.at is not InstanceState.RUNNING:
            raise InvalidState(f"The sandbox is {seen.at}.")
        return seen


def _name(port: int) -> str:
    return f"differently-{port}"


def _url(seen: InstanceRead, port: int) -> str | None:
    return next((one.url for one in seen.networking.http_services if one.name == _name(port)), None)


def _shown(seen: SnapshotRead, owner: Owner) -> SnapshotInfo:
    """Raises `NotFound` for one of somebody else's, and for one that is going."""
    if seen.owner != owner or seen.status in {"deleting", "deleted"}:
        raise NotFound("The snapshot does not exist at Morph.")
    state = SNAPSHOT_STATES.get(seen.status, SnapshotState.FAILED)
    message = "" if state is SnapshotState.READY else seen.status
    return SnapshotInfo(seen.id, owner, SnapshotKind.MEMORY, state, message=message)


def _stands(seen: InstanceRead, wanted: InstanceState) -> Transitioned:
    made = seen.instance()
    if made.state is wanted:
        return Transitioned(Progress.DONE, made)
    progress = Progress.UNDERWAY if made.state is InstanceState.PENDING else Progress.FAILED
    return Transitioned(progress, made, made.message)


def _checked(seen: InstanceRead, target: Target) -> InstanceRead:
    if seen.owner != target.owner:
        raise _missing(target)
    return seen


def _missing(target: Target) -> NotFound:
    return NotFound(f"Sandbox {target.owner.sandbox} has no instance at Morph.")
