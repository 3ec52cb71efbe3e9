"""The Freestyle adapter: the contract's operations over one API, which also carries commands and files.

Every call looks at the VM first and checks its metadata. A VM's slug is made of its owner and exists once in an
account, so a create that is repeated meets the first.
"""

from __future__ import annotations

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
from differently_core.errors import (
    BackendError,
    InvalidRequest,
    InvalidState,
    NotFound,
    ProviderUnavailable,
    SandboxFailed,
)
from differently_core.model import features

from ...inside import Inside, ThroughInside
from ...observing import each_observed
from ...waiting import Waits, as_outage, begun, ordered_once
from . import snapshots
from .api import Api
from .config import FreestyleConfig
from .shell import FreestyleShell, store_env
from .wire import FOREVER, VmRead, labels, slug

CREATE_SECONDS: Final = 120.0
SETTLES_SECONDS: Final = 120.0
SPARE_SECONDS: Final = 300
"""The backend's own timer ends what we forgot; it must not be faster than we are."""
PORT_MAX: Final = 65_535
OFF_SECONDS: Final = 15.0
POWER_OFF: Final = "poweroff"
_NEVER: Final[Declaration] = {
    Operation.EXEC_STREAM: Unsupported("no_streaming"),
    Operation.CALL_OFF: Unsupported("pause_cannot_be_called_off"),
    Operation.EGRESS_SET: Unsupported("egress_is_set_for_the_pool"),
}


def declared(config: FreestyleConfig) -> Declaration:
    """What a pool with this configuration offers."""
    entries: dict[Operation, Supported | Unsupported] = {**dict.fromkeys(Operation, SUPPORTED), **_NEVER}
    if not config.public_ports:
        entries.update(dict.fromkeys((Operation.PORT_EXPOSE, Operation.PORT_REVOKE), Unsupported("ports_are_closed")))
    return entries


class FreestyleAdapter(ThroughInside, NotOffered):
    kind: ClassVar[str] = "freestyle"
    operations: ClassVar[Declaration] = {**dict.fromkeys(Operation, SUPPORTED), **_NEVER}
    """Of the kind; a pool's own declaration depends on its configuration and takes this one's place."""

    def __init__(self, context: AdapterContext) -> None:
        if not isinstance(context.config, FreestyleConfig):
            raise TypeError("a freestyle adapter needs a FreestyleConfig")
        self._config = context.config
        self._pool = context.pool
        self._clock = context.clock
        self._api = Api(self._config, context.credential.get("api_key", "").strip(), context.clock, context.untold)
        vars(self)["operations"] = declared(self._config)

    # The pool.

    def info(self) -> Info:
        return Info(
            kind=self.kind, version="5", trust=None, isolation="microvm", idempotent_create=True,
            settles_seconds=SETTLES_SECONDS, create_seconds=CREATE_SECONDS, description="Freestyle VMs.",
        )  # fmt: skip

    def capabilities(self) -> Capabilities:
        told = {
            features.EXEC, features.FILES, features.STOP_START, features.PERSISTENCE_DISK, features.PAUSE_RESUME,
            features.SNAPSHOTS_DISK, features.SNAPSHOTS_MEMORY, features.FORK, "isolation.microvm",
            *self._config.features,
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

    def discover(self) -> Catalog:
        """Snapshots of the account that are not ours."""
        found = self._api.snapshots()
        named = {seen.id: seen.display_name or seen.slug or "" for seen in found}
        return Catalog(templates={ref: name for ref, name in named.items() if not name.startswith("differently/")})

    # Lifecycle.

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        ends = self._clock.monotonic() + deadline
        body = self._body(request)
        if request.from_snapshot is not None:
            snapshots.check(self._api, request.owner.installation, request.from_snapshot)
        seen = self._made(request, body, deadline)
        with begun():
            return self._ready(request, seen, ends)

    def _body(self, request: CreateRequest) -> dict[str, JsonValue]:
        """Everything that Freestyle would decide by itself is said: sleeping, restarting, networks."""
        allowed: list[JsonValue] = []
        if self._config.egress == "public":
            allowed = [{"action": "allow", "source": {}, "destination": {"public": True}}]
        return {
            "snapshotId": request.from_snapshot or request.image or self._config.snapshot,
            "slug": slug(request.owner.installation, request.owner.sandbox), "metadata": labels(request.owner),
            "ttlSeconds": request.ttl_seconds + SPARE_SECONDS, "idleTimeoutSeconds": FOREVER,
            "autoDeleteSeconds": FOREVER, "maxRunSeconds": FOREVER, "maxRunTotalSeconds": FOREVER,
            "automaticRestart": False, "firewall": {"rules": allowed}, "tls": {"rules": []}, "vpcs": [],
        }  # fmt: skip

    def _made(self, request: CreateRequest, body: dict[str, JsonValue], deadline: float) -> VmRead:
        try:
            return self._api.create(body, deadline, tuple(request.env.values()))
        except InvalidState:
            pass  # the slug is taken
        except NotFound:
            raise InvalidRequest("Freestyle has no such snapshot to make a VM from.", field="image") from None
        except BackendError as error:
            if request.from_snapshot is None or error.settled or "status" not in error.details:
                raise
            raise SandboxFailed("Freestyle could not make a VM from the snapshot.") from None
        with begun():
            try:
                found = self._api.vm(str(body["slug"]))
            except NotFound:
                raise InvalidState("The sandbox's VM is being deleted.") from None
        if found.owner != request.owner:
            raise InvalidState("The name of the sandbox's VM is taken by another one.")
        return found

    def _ready(self, request: CreateRequest, seen: VmRead, ends: float) -> Instance:
        waits = Waits(self._clock, ends)
        while seen.at is InstanceState.PENDING and waits.again():
            seen = self._api.vm(seen.id)
        if seen.owner != request.owner:
            raise ProviderUnavailable("Freestyle does not keep the metadata that says whose the VM is.")
        if seen.at is InstanceState.STOPPED:
            raise SandboxFailed("The VM stopped while it was being made.")
        if seen.at is InstanceState.RUNNING:
            store_env(self._shell(seen), dict(request.env))
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
            found = self._api.vm(target.ref)
        except NotFound:
            return
        self._api.delete(_checked(found, target).id)

    def renew(self, target: Target, until: datetime) -> datetime | None:
        seen = self._find(target)
        if seen.expires_at is None or seen.expires_at >= until:
            return seen.expires_at
        return self._api.set_ttl(seen.id, math.floor((until - seen.created_at).total_seconds())).expires_at

    # Commands, jobs and files.

    exec_stream = NotOffered.exec_stream

    def _inside(self, target: Target) -> Inside:
        return Inside(self._shell(self._running(target)), self._clock)

    def _shell(self, seen: VmRead) -> FreestyleShell:
        return FreestyleShell(self._api, seen.id, self._clock, self._config.linux_user)

    # Stop and start, pause and resume.

    def stop(self, target: Target, deadline: float) -> Instance:
        """Powered off from inside, by root: Freestyle has no call for it."""
        waits = Waits(self._clock, self._clock.monotonic() + deadline)
        seen = self._find(target)
        if seen.at is InstanceState.PAUSED:
            raise InvalidState("The sandbox is paused; resume it before it is stopped.")
        if seen.at is InstanceState.RUNNING:
            try:
                self._shell(seen).run(POWER_OFF, OFF_SECONDS, user="root")
            except BackendError as error:  # its shell goes with it, so the answer may never come
                if error.settled:
                    raise
        while True:
            with begun():
                seen = self._find(Target(target.owner, seen.id))
            if seen.at is InstanceState.STOPPED or not waits.again():
                return seen.instance()

    def start(self, target: Target, deadline: float) -> Instance:
        return self._started(self._find(target), target.owner, deadline)

    def _started(self, seen: VmRead, owner: Owner, deadline: float) -> Instance:
        waits = Waits(self._clock, self._clock.monotonic() + deadline)
        if seen.at in {InstanceState.STOPPED, InstanceState.PAUSED}:
            ordered_once(lambda: self._api.start(seen.id, deadline))
        while True:
            with begun():
                now = self._find(Target(owner, seen.id))
            if now.at is InstanceState.RUNNING or not waits.again():
                return now.instance()

    def pause(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        waits = Waits(self._clock, self._clock.monotonic() + deadline)
        seen = self._incarnation(target, transition)
        if transition.observe_only or seen.at is not InstanceState.RUNNING:
            return _stands(seen, InstanceState.PAUSED)
        ordered_once(lambda: self._api.pause(seen.id, deadline))
        moved = False
        while True:
            with begun():
                now = self._find(Target(target.owner, seen.id))
            moved = moved or now.at is InstanceState.PENDING
            if now.at not in {InstanceState.PENDING, InstanceState.RUNNING} or (moved and now.state == "running"):
                return _stands(now, InstanceState.PAUSED)
            if not waits.again():
                return Transitioned(Progress.UNDERWAY, now.instance())

    def resume(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        seen = self._incarnation(target, transition)
        if transition.observe_only:
            return _stands(seen, InstanceState.RUNNING)
        if seen.at is InstanceState.STOPPED:
            raise InvalidState("The sandbox is stopped; a resume is no cold start.")
        made = self._started(seen, target.owner, deadline)
        return Transitioned(Progress.DONE if made.state is InstanceState.RUNNING else Progress.UNDERWAY, made)

    def _incarnation(self, target: Target, transition: Transition) -> VmRead:
        seen = self._find(target)
        if transition.incarnation:
            raise InvalidState("Freestyle does not tell incarnations apart.")
        return seen

    # Snapshots.

    def snapshot(self, target: Target, request: SnapshotRequest, deadline: float) -> SnapshotInfo:
        return snapshots.take(self._api, self._find(target).id, target.owner, request, deadline)

    def snapshot_get(self, owner: Owner, ref: str) -> SnapshotInfo:
        seen = snapshots.owned(self._api, owner, ref)
        if seen is None:
            raise NotFound("The snapshot does not exist at Freestyle.")
        return snapshots.shown(seen, owner)

    def snapshot_delete(self, owner: Owner, ref: str) -> None:
        seen = snapshots.owned(self._api, owner, ref)
        if seen is not None:
            self._api.snapshot_delete(seen.id)

    # Ports and egress.

    def port_expose(self, target: Target, port: int, seconds: int) -> Exposure:
        """A name of its own for each port, which lasts until it is revoked or the VM goes."""
        self._need_ports(Operation.PORT_EXPOSE)
        if not 1 <= port <= PORT_MAX:
            raise InvalidRequest(f"A port is a number from 1 to {PORT_MAX}.", field="port")
        seen = self._running(target)
        domain = self._domain(seen, port)
        if all(rule.domain != domain for rule in self._api.tls_rules(seen.id)):
            self._api.tls_add(
                {
                    "action": "allow", "domain": domain, "source": {"public": True},
                    "destination": {"vmId": seen.id, "port": port},
                }
            )  # fmt: skip
        return Exposure(port, f"https://{domain}")

    def port_revoke(self, target: Target, port: int) -> None:
        self._need_ports(Operation.PORT_REVOKE)
        seen = self._find(target)
        for rule in self._api.tls_rules(seen.id):
            if rule.domain == self._domain(seen, port):
                self._api.tls_delete(rule.id)

    def _domain(self, seen: VmRead, port: int) -> str:
        return f"{port}-{seen.slug or seen.id}.{self._config.port_domain}"

    def _need_ports(self, operation: Operation) -> None:
        if not self._config.public_ports:
            raise unsupported(self, operation, self._pool)

    def close(self) -> None:
        self._api.http.close()

    # One VM.

    def _find(self, target: Target) -> VmRead:
        if target.ref is not None:
            try:
                return _checked(self._api.vm(target.ref), target)
            except NotFound:
                raise _missing(target) from None
        found = self._api.owned(target.owner)
        if not found:
            raise _missing(target)
        return found[0]

    def _running(self, target: Target) -> VmRead:
        seen = self._find(target)
        if seen.at is not InstanceState.RUNNING:
            raise InvalidState(f"The sandbox is {seen.at}.")
        return seen


def _stands(seen: VmRead, wanted: InstanceState) -> Transitioned:
    made = seen.instance()
    if made.state is wanted:
        return Transitioned(Progress.DONE, made)
    progress = Progress.UNDERWAY if made.state is InstanceState.PENDING else Progress.FAILED
    return Transitioned(progress, made, made.message)


def _checked(seen: VmRead, target: Target) -> VmRead:
    if seen.owner != target.owner:
        raise _missing(target)
    return seen


def _missing(target: Target) -> NotFound:
    return NotFound(f"Sandbox {target.owner.sandbox} has no VM at Freestyle.")
