"""Ports of a running sandbox: opened for a while, taken back when it stops, ends, or nobody wants them any more.

A row is written before the backend is asked and goes only when the backend says that the address is no more, or when
it has ended by itself. While a port is open its row is due again and again, so it is found to be open for nothing
however its sandbox came to rest: by a caller, a timer, or behind our back.
"""

from __future__ import annotations

import logging
import re
from datetime import datetime, timedelta
from ipaddress import IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from ..contract import Exposure, Operation, Target, supports, unsupported
from ..errors import BackendError, DifferentlyError, InvalidState, LimitExceeded, NotFound
from ..model.due import stamp
from ..model.port import PORTS_MAX, OpenPort, PortStatus
from ..model.record import Table
from ..model.sandbox import ENDED, Sandbox, Status
from ..runtime.ids import SandboxId
from ..store.ports import (
    Absent,
    Action,
    Committed,
    Delete,
    Equals,
    Put,
    Refused,
    StoreThrottled,
    StoreUnavailable,
    Update,
)
from .backends import adapter_of, calling
from .core import Caller, Core, system
from .execution import Place, reach
from .sandboxes import find

log = logging.getLogger(__name__)
PORTS = system("ports")
CALL_SECONDS = 60.0
"""After that no call that opens a port is still under way."""
LOOK_SECONDS = 30.0
"""How often an open port is looked at, to see whether its sandbox still runs."""
_INSIDE = (".localhost", ".local", ".internal", ".svc", ".intranet", ".lan", ".home.arpa", "metadata.goog")
_NAT64 = IPv6Network("64:ff9b::/96")


def expose(core: Core, caller: Caller, sandbox: str, port: int, seconds: int) -> tuple[OpenPort, str]:
    """The row of the open port and its address, which is told once and kept nowhere. Counts as use of the sandbox.

    It ends after `seconds`, or sooner with the sandbox. Asked for again it may be the same address, for longer.
    Raises `InvalidState` unless the sandbox runs, `LimitExceeded` for one port too many, `UnsupportedOperation` and
    `BackendError`; after an unknown outcome the address is taken back.
    """
    place = reach(core, caller, sandbox, Operation.PORT_EXPOSE)
    row = _remembered(core, caller, place, port, seconds)
    asked = max(1, int((row.expires_at - core.clock.now()).total_seconds()))
    try:
        shown = calling(place.adapter, lambda: place.adapter.port_expose(place.target, port, asked))
    except DifferentlyError as error:
        if isinstance(error, BackendError) and not error.settled:
            _give_up(core, row)
        elif row.status is PortStatus.OPENING:
            core.commit([Delete(OpenPort, row.key(), "port", (Equals("version", row.version),))])
        raise
    if not is_for_the_world(shown.url):
        _give_up(core, row)
        raise unsupported(place.adapter, Operation.PORT_EXPOSE, place.pool, "internal_address")
    opened = row.with_(status=PortStatus.OPEN, expires_at=_end(place, row, shown), due_at=core.after(LOOK_SECONDS))
    if isinstance(core.commit([_write(row, opened)]), Refused):
        core.nudges.port(row.sandbox, port)
        raise InvalidState(f"Port {port} was closed while it was being opened; look at the sandbox, then repeat.")
    log.info("port opened", extra={"sandbox": row.sandbox, "pool": row.pool})
    return opened, shown.url


def _remembered(core: Core, caller: Caller, place: Place, port: int, seconds: int) -> OpenPort:
    """Write down that the port is being opened, on condition that the sandbox still runs as it was seen to."""
    sandbox, now = place.sandbox, core.clock.now()
    rows = rows_of(core, sandbox.id)
    before = next((row for row in rows if row.port == port), None)
    if before is not None and before.status is PortStatus.CLOSING:
        raise InvalidState(f"Port {port} is being closed; repeat the call in a few seconds.", port=port)
    if before is None and len(rows) >= PORTS_MAX:
        raise LimitExceeded(
            f"{len(rows)} ports of this sandbox are open already (limit {PORTS_MAX}); close one first.",
            resource="ports", limit=PORTS_MAX, held=len(rows),
        )  # fmt: skip
    expires = now + timedelta(seconds=seconds)
    row = OpenPort(
        sandbox=sandbox.id, port=port, org=sandbox.org, project=sandbox.project, pool=place.pool,
        ref=sandbox.backend_ref, generation=sandbox.generation, opened_at=now,
        expires_at=expires if sandbox.expires_at is None else min(expires, sandbox.expires_at),
        status=PortStatus.OPENING, due_at=core.after(CALL_SECONDS),
    )  # fmt: skip
    if before is not None:
        # Should we die now, the address that it has stays as it is.
        row = row.with_(status=before.status, version=before.version + 1, opened_at=before.opened_at)
    event = core.event(
        caller, "port.open", sandbox.id, sandbox.org, project=sandbox.project, pool=place.pool, details={"port": port}
    )
    mark = Update(
        Sandbox, sandbox.key(), "sandbox", set={"last_activity_at": stamp(now)}, add={"version": 1},
        when=(Equals("status", Status.RUNNING.value), Equals("generation", sandbox.generation)),
    )  # fmt: skip
    unchanged = Absent() if before is None else Equals("version", before.version)
    outcome = core.commit([Put(row, (unchanged,), "port"), mark, Put(event, (Absent(),), "event")])
    if isinstance(outcome, Refused):
        raise InvalidState(f"The sandbox, or its port {port}, changed meanwhile; look at it and repeat.", port=port)
    return row


def _end(place: Place, row: OpenPort, shown: Exposure) -> datetime:
    """When the address is no more: by the backend, or by us where we can take it back before that."""
    if shown.expires_at is None:
        return row.expires_at
    revocable = supports(place.adapter, Operation.PORT_REVOKE)
    return min(row.expires_at, shown.expires_at) if revocable else shown.expires_at


def _give_up(core: Core, row: OpenPort) -> None:
    """It may be open, and its address will not be told: take it back."""
    core.commit([_write(row, row.with_(status=PortStatus.CLOSING, due_at=core.clock.now()))])
    core.nudges.port(row.sandbox, row.port)


def is_for_the_world(url: str) -> bool:
    """Whether an address leads anywhere from outside: it is not of a machine or network inside, and has no password."""
    try:
        parts = urlsplit(url)
        host, _ = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.username is None and (_is_global(host) or _is_public(host))


def _is_global(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    # An address inside another one is not looked for: nobody needs such an address.
    wrapped = isinstance(address, IPv6Address) and (address.sixtofour is not None or address in _NAT64)
    return address.is_global and not address.is_multicast and not wrapped


def _is_public(host: str) -> bool:
    """A name with a dot, not of an inside zone; an address in a disguise (`127.1`, `0x7f.1`) is no name."""
    end = host.rpartition(".")[2]
    return "." in host and re.fullmatch(r"[a-z][a-z0-9-]*", end) is not None and not host.endswith(_INSIDE)


# Reading


def rows_of(core: Core, sandbox: SandboxId) -> list[OpenPort]:
    """By port; one round trip."""
    page = core.store.query(Table.STATE, f"SBX#{sandbox}", prefix="PORT#")
    return [row for row in page.rows if isinstance(row, OpenPort)]


def list_ports(core: Core, caller: Caller, sandbox: str) -> list[OpenPort]:
    """Neither wakes the sandbox nor counts as use of it."""
    return rows_of(core, find(core, caller, sandbox).id)


# Taking back


def close(core: Core, caller: Caller, sandbox: str, port: int) -> PortStatus | None:
    """Take an address back; None when it is no more, `closing` while the backend has not said so. Repeating is fine.

    Raises `UnsupportedOperation` where the pool cannot take one back before it ends by itself.
    """
    found = find(core, caller, sandbox)
    row = core.store.get(OpenPort, OpenPort.key_of(found.id, port))
    if row is None:
        return None
    if row.status is not PortStatus.CLOSING:
        if found.status is Status.RUNNING:
            Place(found, adapter_of(core, row.pool), Target(core.owner(found.id), row.ref)).need(Operation.PORT_REVOKE)
        row = _closing(core, caller, row)
    if row is not None:
        _take_back(core, row, found)
    left = core.store.get(OpenPort, OpenPort.key_of(found.id, port))
    return left.status if left is not None else None


def step(core: Core, sandbox: SandboxId, port: int) -> None:
    """Look at one port: is it open for something, and if not, take it back. Raises only for faults of the store."""
    row = core.store.get(OpenPort, OpenPort.key_of(sandbox, port))
    if row is None:
        return
    found = core.store.get(Sandbox, Sandbox.key_of(sandbox))
    if row.status is not PortStatus.CLOSING:
        now = core.clock.now()
        if _is_wanted(row, found, now):
            if row.due_at is None or now >= row.due_at:
                look = min(core.after(LOOK_SECONDS), row.expires_at)
                core.commit([_write(row, row.with_(due_at=look))])
            return
        closing = _closing(core, PORTS, row)
        if closing is None:
            return  # somebody was faster
        row = closing
    _take_back(core, row, found)


def _is_wanted(row: OpenPort, sandbox: Sandbox | None, now: datetime) -> bool:
    if sandbox is None or sandbox.status is not Status.RUNNING or sandbox.generation != row.generation:
        return False
    if row.status is PortStatus.OPENING:
        return row.due_at is not None and now < row.due_at
    return now < row.expires_at


def _closing(core: Core, caller: Caller, row: OpenPort) -> OpenPort | None:
    """The row from now on; None when somebody else changed it."""
    changed = row.with_(status=PortStatus.CLOSING, due_at=core.clock.now())
    event = core.event(
        caller, "port.close", row.sandbox, row.org, project=row.project, pool=row.pool, details={"port": row.port}
    )
    if isinstance(core.commit([_write(row, changed), Put(event, (Absent(),), "event")]), Committed):
        return changed.with_(version=row.version + 1)
    return None


def _take_back(core: Core, row: OpenPort, sandbox: Sandbox | None) -> None:
    """Ask the backend, and forget the port when it is no more. Nothing of a sandbox that has ended is left to ask."""
    due = _refused_until(core, row) if sandbox is not None and sandbox.status not in ENDED else None
    action: Action = Delete(OpenPort, row.key(), "port", (Equals("version", row.version),))
    if due is not None:
        action = _write(row, row.with_(due_at=due, failures=row.failures + 1))
    core.commit([action])


def _refused_until(core: Core, row: OpenPort) -> datetime | None:
    """When to ask again; None when the address is no more."""
    try:
        adapter = adapter_of(core, row.pool)
        if not supports(adapter, Operation.PORT_REVOKE):
            return row.expires_at if core.clock.now() < row.expires_at else None
        calling(adapter, lambda: adapter.port_revoke(Target(core.owner(row.sandbox), row.ref), row.port))
    except NotFound:
        return None  # with the instance went its ports
    except (StoreThrottled, StoreUnavailable):
        raise
    except DifferentlyError as error:
        log.info("port not taken back yet", extra={"sandbox": row.sandbox, "pool": row.pool, "code": error.code})
        tuning = core.tuning
        seconds = tuning.terminate_retry_seconds * 2 ** min(row.failures, 10)
        return core.after(min(seconds, tuning.terminate_retry_seconds_max))
    return None


def _write(before: OpenPort, after: OpenPort) -> Put:
    return Put(after.with_(version=before.version + 1), (Equals("version", before.version),), "port")
