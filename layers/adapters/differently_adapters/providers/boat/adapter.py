"""The Boat adapter: the contract's operations over one API, which also carries commands and files.

Every call looks at the machine first and checks its name, which is all that says whose it is. A create has a key, under
which Boat makes one machine a day.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar, Final

from pydantic import JsonValue

from differently_core.contract import (
    SUPPORTED,
    AdapterContext,
    Capabilities,
    Capacity,
    Catalog,
    CreateRequest,
    Declaration,
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

from ...inside import Inside, ThroughInside
from ...names import sandbox_name
from ...observing import each_observed
from ...shell_files import Carriers
from ...waiting import Waits, as_outage, begun, ordered_once
from . import snapshots
from .api import Api
from .config import BoatConfig
from .names import SNAPSHOT_NAME, SNAPSHOT_PREFIX, machine_name
from .shell import BoatShell
from .wire import CANCELLED, MachineRead

CREATE_SECONDS: Final = 180.0
SETTLES_SECONDS: Final = 180.0
SPARE_SECONDS: Final = 300
"""The backend's own timer stops what we forgot; it must not be faster than we are."""
TTL_SECONDS_MAX: Final = 2_592_000
OWN_VARIABLE: Final = "DIFFERENTLY_SANDBOX"
"""Always in an environment: without one of its own, a machine would have that of the snapshot's source."""
_NEVER: Final[Declaration] = {
    Operation.PAUSE: Unsupported("stops_instead"),
    Operation.RESUME: Unsupported("stops_instead"),
    Operation.CALL_OFF: Unsupported("stops_instead"),
    Operation.PORT_EXPOSE: Unsupported("ports_cannot_be_closed"),
    Operation.PORT_REVOKE: Unsupported("ports_cannot_be_closed"),
    Operation.EGRESS_SET: Unsupported("no_egress_control"),
}


class BoatAdapter(ThroughInside, NotOffered):
    kind: ClassVar[str] = "boat"
    operations: ClassVar[Declaration] = {**dict.fromkeys(Operation, SUPPORTED), **_NEVER}

    def __init__(self, context: AdapterContext) -> None:
        if not isinstance(context.config, BoatConfig):
            raise TypeError("a boat adapter needs a BoatConfig")
        self._config = context.config
        self._pool = context.pool
        self._clock = context.clock
        self._api = Api(self._config, context.credential.get("api_key", "").strip(), context.clock, context.untold)

    # The pool.

    def info(self) -> Info:
        return Info(
            kind=self.kind, version="1", trust=None, isolation="vm", idempotent_create=True,
            settles_seconds=SETTLES_SECONDS, create_seconds=CREATE_SECONDS, description="Boat machines.",
        )  # fmt: skip

    def capabilities(self) -> Capabilities:
        told = {
            features.EXEC, features.EXEC_STREAM, features.FILES, features.STOP_START, features.PERSISTENCE_DISK,
            features.SNAPSHOTS_DISK, features.FORK, *self._config.features,
        }  # fmt: skip
        return Capabilities(
            features=frozenset(told), max_cpu_millis=self._config.machine_cpu_millis or 0,
            max_memory_mib=self._config.machine_memory_mib or 0, max_disk_gib=self._config.machine_disk_gib or 0,
        )  # fmt: skip

    def capacity(self) -> Capacity:
        """Machines that the account may still start, each as large as the pool says; without that, only whether any."""
        room = self._api.limits().room(self._config.machine_type)
        cpu, memory = self._config.machine_cpu_millis, self._config.machine_memory_mib
        if room == 0:
            return Capacity(bounded=True)
        if cpu is None or memory is None:
            return Capacity(bounded=False)
        return Capacity(
            bounded=True, free_cpu_millis=room * cpu, free_memory_mib=room * memory, largest_free_cpu_millis=cpu,
            largest_free_memory_mib=memory,
        )  # fmt: skip

    def health(self) -> None:
        as_outage(self._api.look)

    def verify_credential(self) -> None:
        as_outage(self._api.look)

    def discover(self) -> Catalog:
        """Saved snapshots of the account that are not ours."""
        names = [seen.name for seen in self._api.snapshots()]
        return Catalog(templates={name: name for name in names if not name.startswith(SNAPSHOT_PREFIX)})

    # Lifecycle.

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        ends = self._clock.monotonic() + deadline
        body = self._body(request)
        if request.from_snapshot is not None:
            snapshots.check(self._api, request.owner.installation, request.from_snapshot)
        seen = self._made(request, body, Waits(self._clock, ends), deadline)
        with begun():
            return self._ready(request.owner, seen, ends)

    def _body(self, request: CreateRequest) -> dict[str, JsonValue]:
        """The account's secrets stay out of it, colleagues as well, and Boat keeps no history of its commands."""
        source = request.from_snapshot or self._image(request)
        env: dict[str, JsonValue] = {**dict(sorted(request.env.items())), OWN_VARIABLE: request.owner.sandbox}
        body: dict[str, JsonValue] = {
            "name": machine_name(request.owner), "type": self._config.machine_type,
            "ttlSeconds": min(request.ttl_seconds + SPARE_SECONDS, TTL_SECONDS_MAX), "env": env, "noEnv": True,
            "snapshots": True, "monitoring": False, "visibility": "private", "failFast": self._config.fail_fast,
        }  # fmt: skip
        return body if source is None else {**body, "from": source}

    def _image(self, request: CreateRequest) -> str | None:
        """Never one of our own captures, which are of other tenants."""
        image = request.image or self._config.snapshot
        if image is not None and (not re.fullmatch(SNAPSHOT_NAME, image) or image.startswith(SNAPSHOT_PREFIX)):
            raise InvalidRequest("An image at Boat is the name of one of the account's saved snapshots.", field="image")
        return image

    def _made(self, request: CreateRequest, body: dict[str, JsonValue], waits: Waits, deadline: float) -> MachineRead:
        """Sent again only while Boat says that the first one is still being made."""
        while True:
            try:
                return self._api.create(body, sandbox_name(request.owner), deadline, tuple(request.env.values()))
            except NotFound:
                raise InvalidRequest("Boat has no such snapshot to make a machine from.", field="image") from None
            except InvalidState as error:
                reason = error.details.get("reason")
                if reason == "idempotency_key_reused":
                    break
                if reason != "idempotency_in_progress":
                    raise
            if not waits.again():
                raise ProviderUnavailable("Boat is still making the machine.")
        with begun():
            found = self._api.owned(request.owner)
        if not found:
            raise InvalidState("The sandbox's machine is gone; Boat makes no other one under its key for a day.")
        return found[0]

    def _ready(self, owner: Owner, seen: MachineRead, ends: float) -> Instance:
        """What was accepted may yet find no machine, and is gone then."""
        waits = Waits(self._clock, ends)
        try:
            if seen.owner != owner:  # an earlier create's answer, given again
                seen = self._api.machine(seen.id)
            while seen.at is InstanceState.PENDING and waits.again():
                seen = self._api.machine(seen.id)
        except NotFound:
            raise SandboxFailed("The machine is gone; Boat could not make it, or it was deleted.") from None
        if seen.at is InstanceState.ERROR:
            raise SandboxFailed(f"Boat could not make the machine: {seen.state}.")
        if seen.owner != owner:
            raise ProviderUnavailable("Boat does not keep the name that says whose the machine is.")
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
            found = self._api.machine(target.ref)
        except NotFound:
            return
        if found.state != CANCELLED:
            self._api.delete(_checked(found, target).id)

    def renew(self, target: Target, until: datetime) -> datetime | None:
        """Boat counts from now and would also shorten; where the end is now is read back."""
        seen = self._find(target)
        expires = seen.archive_after
        if expires is None or expires >= until:
            return expires
        left = math.floor((until - self._clock.now()).total_seconds())
        self._api.set_ttl(seen.id, min(max(1, left), TTL_SECONDS_MAX))
        with begun():
            return self._find(Target(target.owner, seen.id)).archive_after

    # Commands, jobs and files.

    def _inside(self, target: Target) -> Inside:
        shell = BoatShell(self._api, self._running(target).id, self._clock)
        return Inside(shell, self._clock, Carriers(shell.upload))

    # Stop and start.

    def stop(self, target: Target, deadline: float) -> Instance:
        """Archived once the disk is saved, and never by force: Boat tries again until it can."""
        waits = Waits(self._clock, self._clock.monotonic() + deadline)
        seen = self._find(target)
        if seen.at is InstanceState.RUNNING:
            ordered_once(lambda: self._api.stop(seen.id, deadline))
        return self._moved(target.owner, seen, InstanceState.STOPPED, waits)

    def start(self, target: Target, deadline: float) -> Instance:
        """On a fresh machine, with the environment and the time to live that it had."""
        waits = Waits(self._clock, self._clock.monotonic() + deadline)
        seen = self._find(target)
        if seen.at is InstanceState.STOPPED:
            body: dict[str, JsonValue] = {"noEnv": True, "failFast": self._config.fail_fast}
            ordered_once(lambda: self._api.resume(seen.id, body, deadline))
        return self._moved(target.owner, seen, InstanceState.RUNNING, waits)

    def _moved(self, owner: Owner, seen: MachineRead, wanted: InstanceState, waits: Waits) -> Instance:
        while True:
            with begun():
                now = self._find(Target(owner, seen.id))
            if now.at in {wanted, InstanceState.ERROR} or not waits.again():
                return now.instance()

    # Snapshots.

    def snapshot(self, target: Target, request: SnapshotRequest, deadline: float) -> SnapshotInfo:
        if request.kind is SnapshotKind.MEMORY:
            raise unsupported(self, Operation.SNAPSHOT, self._pool, "no_memory_snapshots")
        waits = Waits(self._clock, self._clock.monotonic() + deadline)
        return snapshots.take(self._api, self._find(target).id, target.owner, request, waits)

    def snapshot_get(self, owner: Owner, ref: str) -> SnapshotInfo:
        return snapshots.owned(self._api, owner, ref)

    def snapshot_delete(self, owner: Owner, ref: str) -> None:
        try:
            seen = self._api.snapshot(snapshots.checked(owner, ref))
        except NotFound as error:
            if error.details.get("foreign"):
                raise
            return
        self._api.snapshot_delete(seen.name)

    def close(self) -> None:
        self._api.http.close()

    # One machine.

    def _find(self, target: Target) -> MachineRead:
        if target.ref is not None:
            try:
                return _checked(self._api.machine(target.ref), target)
            except NotFound:
                raise _missing(target) from None
        found = self._api.owned(target.owner)
        if not found:
            raise _missing(target)
        return found[0]

    def _running(self, target: Target) -> MachineRead:
        seen = self._find(target)
        if seen.at is not InstanceState.RUNNING:
            raise InvalidState(f"The sandbox is {seen.at}.")
        return seen


def _checked(seen: MachineRead, target: Target) -> MachineRead:
    """One that was cancelled is told without its name, and is gone."""
    if seen.state == CANCELLED or seen.owner != target.owner:
        raise _missing(target)
    return seen


def _missing(target: Target) -> NotFound:
    return NotFound(f"Sandbox {target.owner.sandbox} has no machine at Boat.")
