"""The E2B adapter: the contract's operations over the control API and the agent in each sandbox.

Every call looks at the sandbox first and checks its metadata. That same look tells the agent's access token, so
nothing about a sandbox is kept between calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import ClassVar, Final

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
)
from differently_core.model import features

from ... import envd
from ...inside import Inside, ThroughInside
from ...observing import each_observed
from ...shell_files import Carriers
from ...waiting import as_outage
from . import egress, snapshots
from .api import Api
from .config import E2bConfig
from .making import Maker
from .wire import SandboxRead, instance

CREATE_SECONDS: Final = 90.0
SETTLES_SECONDS: Final = 120.0
"""A create is answered when the sandbox runs; one whose answer was lost is done or given up by then."""
PORT_MAX: Final = 65_535
RESUMED_SECONDS: Final = 3_600
"""Asked for at a resume, within the plan; E2B only ever extends with it."""

_NEVER: Final[Declaration] = {
    Operation.STOP: Unsupported("pauses_instead"),
    Operation.START: Unsupported("pauses_instead"),
    Operation.CALL_OFF: Unsupported("pause_cannot_be_called_off"),
    Operation.PORT_REVOKE: Unsupported("addresses_are_permanent"),
}


def declared(config: E2bConfig) -> Declaration:
    """What a pool with this configuration offers."""
    entries: dict[Operation, Supported | Unsupported] = {**dict.fromkeys(Operation, SUPPORTED), **_NEVER}
    if not config.public_ports:
        entries[Operation.PORT_EXPOSE] = Unsupported("ports_are_closed")
    return entries


class E2bAdapter(ThroughInside, NotOffered):
    kind: ClassVar[str] = "e2b"
    operations: ClassVar[Declaration] = {**dict.fromkeys(Operation, SUPPORTED), **_NEVER}
    """Of the kind; a pool's own declaration depends on its configuration and takes this one's place."""

    def __init__(self, context: AdapterContext) -> None:
        if not isinstance(context.config, E2bConfig):
            raise TypeError("an e2b adapter needs an E2bConfig")
        self._config = context.config
        self._pool = context.pool
        self._clock = context.clock
        self._api = Api(self._config, context.credential.get("api_key", ""), context.clock, context.untold)
        self._maker = Maker(self._api, self._config, context.clock)
        vars(self)["operations"] = declared(self._config)

    # The pool.

    def info(self) -> Info:
        return Info(
            kind=self.kind, version="1", trust=None, isolation="microvm",
            idempotent_create=not self._config.legacy_create, settles_seconds=SETTLES_SECONDS,
            create_seconds=CREATE_SECONDS, description=f"E2B at {self._config.domain}.",
        )  # fmt: skip

    def capabilities(self) -> Capabilities:
        told = {
            features.EXEC, features.EXEC_STREAM, features.FILES, features.PAUSE_RESUME, features.SNAPSHOTS_MEMORY,
            features.FORK, features.EGRESS_CONTROL, "isolation.microvm", *self._config.features,
        }  # fmt: skip
        if self._config.public_ports:
            told |= {features.PORTS_EXPOSE}
        return Capabilities(
            features=frozenset(told),
            max_cpu_millis=self._config.template_cpu_millis or 0,
            max_memory_mib=self._config.template_memory_mib or 0,
            max_disk_gib=self._config.template_disk_gib or 0,
        )

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
        return instance(self._find(target))

    def list(self, installation: str) -> Instances:
        return [instance(seen) for seen in self._api.of_installation(installation)]

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
        """E2B counts from now and would also shorten; the plan may stop it earlier, so the end is read back."""
        seen = self._running(target)
        now = self._clock.now()
        wanted = min(until, now + timedelta(seconds=self._config.timeout_seconds_max))
        if seen.end_at is not None and seen.end_at >= wanted:
            return seen.end_at
        self._api.set_timeout(seen.sandbox_id, max(1, math.floor((wanted - now).total_seconds())))
        return self._api.sandbox(seen.sandbox_id).end_at

    # Commands, jobs and files.

    def _inside(self, target: Target) -> Inside:
        seen = self._running(target)
        headers = {"e2b-sandbox-id": seen.sandbox_id, "e2b-sandbox-port": str(envd.PORT)}
        place = self._config.agent(seen.sandbox_id, seen.domain or self._config.domain, envd.PORT)
        agent = envd.Envd(self._api.http, place, headers, seen.envd_access_token, self._clock)
        return Inside(agent, self._clock, Carriers(agent.upload, agent.download))

    # Pause and resume. E2B has no other stop, and answers both when they are done.

    def pause(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        seen = self._incarnation(target, transition)
        if transition.observe_only or seen.at is InstanceState.PAUSED:
            return _stands(seen, InstanceState.PAUSED)
        try:
            self._api.pause(seen.sandbox_id, deadline)
        except InvalidState:
            return self._looked_again(target, InstanceState.PAUSED)  # paused already, or in another transition
        except BackendError as error:
            if error.settled or "status" not in error.details:
                raise
            return self._looked_again(target, InstanceState.PAUSED)
        return self._looked_again(target, InstanceState.PAUSED)

    def resume(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        if transition.observe_only:
            # A resumed sandbox is another incarnation, which is how one can tell.
            return self._looked_again(target, InstanceState.RUNNING)
        seen = self._incarnation(target, transition)
        if seen.at is not InstanceState.RUNNING:
            seconds = min(RESUMED_SECONDS, self._config.timeout_seconds_max)
            self._api.connect(seen.sandbox_id, seconds, deadline)
        return self._looked_again(target, InstanceState.RUNNING)

    def _incarnation(self, target: Target, transition: Transition) -> SandboxRead:
        seen = self._find(target)
        if transition.incarnation and instance(seen).incarnation != transition.incarnation:
            raise InvalidState("The sandbox is another incarnation than the named one.")
        return seen

    def _looked_again(self, target: Target, wanted: InstanceState) -> Transitioned:
        return _stands(self._find(target), wanted)

    # Snapshots.

    def snapshot(self, target: Target, request: SnapshotRequest, deadline: float) -> SnapshotInfo:
        seen = self._running(target)
        return snapshots.take(self._api, seen.sandbox_id, target.owner, request, deadline)

    def snapshot_get(self, owner: Owner, ref: str) -> SnapshotInfo:
        seen = snapshots.owned(self._api, owner, ref)
        if seen is None:
            raise NotFound("The snapshot does not exist at E2B.")
        return snapshots.shown(seen, owner)

    def snapshot_delete(self, owner: Owner, ref: str) -> None:
        seen = snapshots.owned(self._api, owner, ref)
        if seen is None:
            return
        try:
            self._api.snapshot_delete(seen.snapshot_id)
        except InvalidRequest:
            raise InvalidState("Sandboxes that were made from the snapshot still run; delete them first.") from None

    # Ports and egress.

    def port_expose(self, target: Target, port: int, seconds: int) -> Exposure:
        """An address that is there anyhow: E2B serves every port of a sandbox."""
        if not self._config.public_ports:
            raise unsupported(self, Operation.PORT_EXPOSE, self._pool)
        if not 1 <= port <= PORT_MAX:
            raise InvalidRequest(f"A port is a number from 1 to {PORT_MAX}.", field="port")
        if port == envd.PORT:
            raise InvalidRequest(f"Port {port} belongs to the sandbox's own agent.", field="port")
        seen = self._running(target)
        return Exposure(port, self._config.port_url(seen.sandbox_id, seen.domain or self._config.domain, port))

    def egress_set(self, target: Target, rules: EgressRules) -> None:
        wanted = egress.body(rules)
        seen = self._running(target)
        self._api.set_network(seen.sandbox_id, wanted)
        if not egress.in_force(self._api.sandbox(seen.sandbox_id).network, wanted):
            raise ProviderUnavailable("E2B accepted the egress rules and does not have them in force.")

    def close(self) -> None:
        self._api.http.close()

    # One sandbox.

    def _find(self, target: Target) -> SandboxRead:
        if target.ref is not None:
            return _checked(self._by_ref(target), target)
        found = self._api.owned(target.owner)
        if not found:
            raise _missing(target)
        # A list tells no access token.
        return _checked(self._by_ref(Target(target.owner, found[0].sandbox_id)), target)

    def _by_ref(self, target: Target) -> SandboxRead:
        try:
            return self._api.sandbox(target.ref or "")
        except NotFound:
            raise _missing(target) from None

    def _running(self, target: Target) -> SandboxRead:
        seen = self._find(target)
        if seen.at is not InstanceState.RUNNING:
            raise InvalidState(f"The sandbox is {seen.at}.")
        return seen


def _stands(seen: SandboxRead, wanted: InstanceState) -> Transitioned:
    made = instance(seen)
    if made.state is wanted:
        return Transitioned(Progress.DONE, made)
    progress = Progress.UNDERWAY if made.state is InstanceState.PENDING else Progress.FAILED
    return Transitioned(progress, made, made.message)


def _checked(seen: SandboxRead, target: Target) -> SandboxRead:
    if seen.owner != target.owner:
        raise _missing(target)
    return seen


def _missing(target: Target) -> NotFound:
    return NotFound(f"Sandbox {target.owner.sandbox} does not exist at E2B.")
