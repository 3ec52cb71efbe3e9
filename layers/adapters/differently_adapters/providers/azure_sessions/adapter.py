"""The adapter of Azure's dynamic sessions: the contract's operations over the sessions of one session pool.

A session's identifier is made of its owner, so every call finds it without a list. Each looks at the session first,
because any other call that names one would make it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
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
    NotOffered,
    Observations,
    Operation,
    Target,
    Unsupported,
)
from differently_core.errors import InvalidRequest, NotFound
from differently_core.model import features
from differently_core.model.exec import ExecRequest

from ...inside import Inside, ThroughInside
from ...observing import each_observed
from ...polled import Polled
from ...shell_files import Carriers
from ...waiting import as_outage, begun
from .api import Api
from .config import AzureSessionsConfig
from .shell import SessionShell
from .wire import SessionRead, identifier

CREATE_SECONDS: Final = 90.0
SETTLES_SECONDS: Final = 120.0
"""A session is made by the call that names it first; one whose answer was lost is made or given up by then."""

_MEMORY: Final = Unsupported("memory_is_not_kept")
_DISK: Final = Unsupported("the_disk_would_be_lost")
_NO_SNAPSHOTS: Final = Unsupported("no_snapshots")
_NO_PORTS: Final = Unsupported("no_ports")
_NEVER: Final[Declaration] = {
    Operation.STOP: _DISK,
    Operation.START: _DISK,
    Operation.PAUSE: _MEMORY,
    Operation.RESUME: _MEMORY,
    Operation.CALL_OFF: _MEMORY,
    Operation.SNAPSHOT: _NO_SNAPSHOTS,
    Operation.SNAPSHOT_GET: _NO_SNAPSHOTS,
    Operation.SNAPSHOT_DELETE: _NO_SNAPSHOTS,
    Operation.PORT_EXPOSE: _NO_PORTS,
    Operation.PORT_REVOKE: _NO_PORTS,
    Operation.EGRESS_SET: Unsupported("egress_is_of_the_session_pool"),
    Operation.DISCOVER: Unsupported("nothing_to_discover"),
}


class AzureSessionsAdapter(ThroughInside, NotOffered):
    kind: ClassVar[str] = "azure-sessions"
    operations: ClassVar[Declaration] = {**dict.fromkeys(Operation, SUPPORTED), **_NEVER}

    def __init__(self, context: AdapterContext) -> None:
        if not isinstance(context.config, AzureSessionsConfig):
            raise TypeError("an azure-sessions adapter needs an AzureSessionsConfig")
        self._config = context.config
        self._pool = context.pool
        self._clock = context.clock
        secret = context.credential.get("client_secret", "").strip()
        self._api = Api(self._config, secret, context.clock, context.untold)

    # The pool.

    def info(self) -> Info:
        return Info(
            kind=self.kind, version="1", trust=None, isolation="microvm", idempotent_create=True,
            settles_seconds=SETTLES_SECONDS, create_seconds=CREATE_SECONDS, description="Azure dynamic sessions.",
        )  # fmt: skip

    def capabilities(self) -> Capabilities:
        told = {features.EXEC, features.EXEC_STREAM, features.FILES, "isolation.microvm", *self._config.features}
        return Capabilities(
            features=frozenset(told), lease_seconds=self._config.cooldown_seconds,
            max_cpu_millis=self._config.session_cpu_millis or 0, max_memory_mib=self._config.session_memory_mib or 0,
            max_disk_gib=self._config.session_disk_gib or 0,
        )  # fmt: skip

    def capacity(self) -> Capacity:
        return Capacity(bounded=False)

    def health(self) -> None:
        as_outage(self._api.look)

    def verify_credential(self) -> None:
        as_outage(self._api.look)

    # Lifecycle.

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        """Twice is once: the same name is the same session, and its environment is stored by the first alone."""
        if request.from_snapshot is not None:
            raise NotFound("An Azure sessions pool has no snapshots.")
        if request.image is not None:
            raise InvalidRequest("All sessions of the session pool have its image; name none.", field="image")
        try:
            name = identifier(request.owner)
        except NotFound:
            raise InvalidRequest("Azure takes letters, digits and underscores in ids.", field="id") from None
        try:
            SessionShell(self._api, name).begin(request.env)
        except NotFound:
            raise InvalidRequest("The session pool does not exist.", field="config.poolUrl") from None
        with begun():
            return self._api.session(name).instance()

    def get(self, target: Target) -> Instance:
        return self._find(target).instance()

    def list(self, installation: str) -> Instances:
        found = self._api.sessions()
        return [seen.instance() for seen in found if seen.owner.installation == installation and seen.owner.sandbox]

    def observe_many(self, targets: Sequence[Target]) -> Observations:
        return each_observed(self.get, targets)

    def delete(self, target: Target) -> None:
        try:
            seen = self._find(target)
        except NotFound as error:
            if error.details.get("foreign"):
                raise
            return
        self._api.delete(seen.identifier)

    def renew(self, target: Target, until: datetime) -> datetime | None:
        """Every use moves the end by the cooldown, and nothing moves it further."""
        seen = self._find(target)
        if seen.expire_at is None or seen.expire_at >= until:
            return seen.expire_at
        SessionShell(self._api, seen.identifier).touch()
        with begun():
            return self._api.session(seen.identifier).expire_at

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
        shell = SessionShell(self._api, self._find(target).identifier)
        return Inside(shell, self._clock, Carriers(upload=shell.upload))

    def close(self) -> None:
        self._api.close()

    # One session.

    def _find(self, target: Target) -> SessionRead:
        name = identifier(target.owner)
        if target.ref is not None and target.ref != name:
            raise _missing(target, foreign=True)
        try:
            seen = self._api.session(name)
        except NotFound:
            raise _missing(target) from None
        if seen.identifier != name:
            raise _missing(target, foreign=True)
        return seen


def _missing(target: Target, *, foreign: bool = False) -> NotFound:
    details = {"foreign": True} if foreign else {}
    return NotFound(f"Sandbox {target.owner.sandbox} has no session at Azure.", **details)
