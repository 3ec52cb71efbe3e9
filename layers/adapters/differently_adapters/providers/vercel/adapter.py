"""The Vercel adapter: the contract's operations over named sandboxes and the session that runs of each.

Every call looks at the sandbox first and checks its tags. That same look tells its session, which is another one after
each boot, so nothing about a sandbox is kept between calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
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
    Exposure,
    Info,
    Instance,
    Instances,
    InstanceState,
    NotOffered,
    Observations,
    Operation,
    Supported,
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
from differently_core.model.pool import Trust

from ...inside import Inside, ThroughInside
from ...observing import each_observed
from ...shell_files import Carriers
from ...waiting import as_outage
from . import egress
from .api import Api
from .config import VercelConfig
from .making import MIB_OF_VCPU, Maker
from .session import Session
from .wire import SandboxRead, instance

CREATE_SECONDS: Final = 120.0
SETTLES_SECONDS: Final = 120.0
"""A create is answered when the sandbox runs; one whose answer was lost is done or given up by then."""
PORT_MAX: Final = 65_535
LOOK_SECONDS: Final = 0.5

_NEVER: Final[Declaration] = {
    Operation.PAUSE: Unsupported("memory_is_not_kept"),
    Operation.RESUME: Unsupported("memory_is_not_kept"),
    Operation.CALL_OFF: Unsupported("memory_is_not_kept"),
    Operation.SNAPSHOT: Unsupported("snapshots_have_no_owner"),
    Operation.SNAPSHOT_GET: Unsupported("snapshots_have_no_owner"),
    Operation.SNAPSHOT_DELETE: Unsupported("snapshots_have_no_owner"),
    Operation.PORT_REVOKE: Unsupported("addresses_are_permanent"),
    Operation.DISCOVER: Unsupported("nothing_to_discover"),
}


def declared(config: VercelConfig) -> Declaration:
    """What a pool with this configuration offers."""
    entries: dict[Operation, Supported | Unsupported] = {**dict.fromkeys(Operation, SUPPORTED), **_NEVER}
    if not config.ports:
        entries[Operation.PORT_EXPOSE] = Unsupported("ports_are_closed")
    return entries


class VercelAdapter(ThroughInside, NotOffered):
    kind: ClassVar[str] = "vercel"
    operations: ClassVar[Declaration] = {**dict.fromkeys(Operation, SUPPORTED), **_NEVER}
    """Of the kind; a pool's own declaration depends on its configuration and takes this one's place."""

    def __init__(self, context: AdapterContext) -> None:
        if not isinstance(context.config, VercelConfig):
            raise TypeError("a vercel adapter needs a VercelConfig")
        self._config = context.config
        self._pool = context.pool
        self._clock = context.clock
        self._api = Api(self._config, context.credential.get("token", ""), context.clock)
        self._maker = Maker(self._api, self._config, context.clock)
        vars(self)["operations"] = declared(self._config)

    # The pool.

    def info(self) -> Info:
        return Info(
            kind=self.kind, version="1", trust=Trust.EXTERNAL, isolation="microvm", idempotent_create=True,
            settles_seconds=SETTLES_SECONDS, create_seconds=CREATE_SECONDS, description="Vercel Sandbox.",
        )  # fmt: skip

    def capabilities(self) -> Capabilities:
        told = {
            features.EXEC, features.EXEC_STREAM, features.FILES, features.STOP_START, features.PERSISTENCE_DISK,
            features.EGRESS_CONTROL, "isolation.microvm", *self._config.features,
        }  # fmt: skip
        if self._config.ports:
            told |= {features.PORTS_EXPOSE}
        return Capabilities(
            features=frozenset(told),
            max_cpu_millis=self._config.vcpus_max * 1000,
            max_memory_mib=self._config.vcpus_max * MIB_OF_VCPU,
            regions=(self._config.region,) if self._config.region is not None else (),
            max_lifetime_seconds=self._config.timeout_seconds_max,
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
        """Removed, not stopped: a stopped one still exists and counts."""
        try:
            seen = self._find(target)
        except NotFound as error:
            if error.details.get("foreign") and target.ref is not None:
                raise
            return
        self._api.delete(seen.name)

    def renew(self, target: Target, until: datetime) -> datetime | None:
        """Vercel only extends, by a duration, within the plan; so the end is read back."""
        seen = self._running(target)
        ends = seen.stops_at
        if ends is None or seen.session is None or seen.session.started_at is None:
            raise ProviderUnavailable("Vercel does not tell when the sandbox ends.", settled=True)
        began = ends - timedelta(milliseconds=seen.session.timeout or 0)
        wanted = min(until, began + timedelta(seconds=self._config.timeout_seconds_max))
        milliseconds = int((wanted - ends).total_seconds() * 1000)
        if milliseconds <= 0:
            return ends
        self._api.extend(seen.session.id, milliseconds)
        return self._api.sandbox(seen.name).stops_at

    # Commands, jobs and files.

    def _inside(self, target: Target) -> Inside:
        session = Session(self._api, self._running(target).sandbox.current_session_id)
        return Inside(session, self._clock, Carriers(session.upload, session.download))

    # Stop and start. A stop keeps the disk, and a start is another session.

    def stop(self, target: Target, deadline: float) -> Instance:
        ends = self._clock.monotonic() + deadline
        seen = self._find(target)
        if seen.at is InstanceState.RUNNING:
            with suppress(InvalidState):  # it stopped by itself meanwhile
                self._api.stop(seen.sandbox.current_session_id, deadline)
            seen = self._find(target)
        return instance(self._settled(target, seen, ends))

    def start(self, target: Target, deadline: float) -> Instance:
        ends = self._clock.monotonic() + deadline
        seen = self._settled(target, self._find(target), ends)
        if seen.at is InstanceState.STOPPED:
            self._api.resumed(seen.name, deadline)
            seen = self._settled(target, self._find(target), ends)
        if seen.at is InstanceState.ERROR:
            raise SandboxFailed("The sandbox did not come back.", settled=True)
        return instance(seen)

    def _settled(self, target: Target, seen: SandboxRead, ends: float) -> SandboxRead:
        """As it is when it is no longer on its way, or when the time is up."""
        while seen.at is InstanceState.PENDING and self._clock.monotonic() + LOOK_SECONDS < ends:
            self._clock.sleep(LOOK_SECONDS)
            seen = self._find(target)
        return seen

    # Ports and egress.

    def port_expose(self, target: Target, port: int, seconds: int) -> Exposure:
        """An address that the sandbox has had since it was made."""
        if not self._config.ports:
            raise unsupported(self, Operation.PORT_EXPOSE, self._pool)
        if not 1 <= port <= PORT_MAX:
            raise InvalidRequest(f"A port is a number from 1 to {PORT_MAX}.", field="port")
        seen = self._running(target)
        url = next((route.url for route in seen.routes if route.port == port), None)
        if url is None:
            raise InvalidRequest("Sandboxes of this pool open only the ports that the pool names.", field="port")
        return Exposure(port, url)

    def egress_set(self, target: Target, rules: EgressRules) -> None:
        """For the session that runs and for those to come; read back for both."""
        wanted = egress.policy(rules)
        seen = self._running(target)
        self._api.change(seen.name, {"networkPolicy": wanted})
        self._api.set_network(seen.sandbox.current_session_id, wanted)
        seen = self._api.sandbox(seen.name)
        told = [seen.sandbox.network_policy, seen.session.network_policy if seen.session else None]
        if any(egress.meant(policy) != egress.meant(wanted) for policy in told):
            raise ProviderUnavailable("Vercel accepted the egress rules and does not have them in force.")

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
    return NotFound(f"Sandbox {target.owner.sandbox} does not exist at Vercel.", **details)
