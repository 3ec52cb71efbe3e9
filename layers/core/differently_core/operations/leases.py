"""The backend's own end of an instance: kept behind ours, renewed where it is a lease, and told when it lapsed.

A backend ends an instance five minutes after we would, should we be gone by then. Where it gives only a lease, that is
renewed while half of it is left. A renewal whose answer was lost is looked at, not repeated; none revives anything, and
what the backend tells is all that is believed.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from ..contract import Adapter, Instance, Operation, Target, supports
from ..errors import BackendError, DifferentlyError, NotFound
from ..model.sandbox import LIVE, Reason, Sandbox, Status
from ..store.ports import Committed, StoreThrottled, StoreUnavailable
from . import times
from .attempts import newest
from .backends import adapter_of, calling
from .core import Core, system
from .ending import end, write

log = logging.getLogger(__name__)
LEASES = system("leases")


def told(core: Core, sandbox: Sandbox, adapter: Adapter, ends_at: datetime | None) -> Sandbox:
    """With what the backend told of its own end, and when that is to be moved on."""
    noted = sandbox.with_(lease_ends_at=ends_at, renew_at=None)
    return noted.with_(renew_at=times.renewal(core, noted)) if supports(adapter, Operation.RENEW) else noted


def settle(core: Core, sandbox: Sandbox) -> bool:
    """Renew what is due, and look at what has lapsed; True when the sandbox was written."""
    now = core.clock.now()
    lapsed = sandbox.lease_ends_at is not None and sandbox.lease_ends_at <= now
    due = sandbox.renew_at is not None and sandbox.renew_at <= now
    looked_at = sandbox.due_at is not None and sandbox.due_at <= now
    if not due and not (lapsed and looked_at):
        return False
    try:
        adapter = adapter_of(core, sandbox.pool or "")
        _write(core, sandbox, adapter, _renewed(core, sandbox, adapter))
    except NotFound as error:
        if lapsed:
            _lost(core, sandbox, error)
        else:
            _later(core, sandbox)
    except (StoreThrottled, StoreUnavailable):
        raise
    except DifferentlyError as error:
        log.warning("lease not renewed", extra={"sandbox": sandbox.id, "pool": sandbox.pool, "error": error.message})
        _later(core, sandbox)
    return True


def _renewed(core: Core, sandbox: Sandbox, adapter: Adapter) -> datetime | None:
    """When the backend ends it now: told by the renewal, or by a look at what became of it."""
    target = Target(core.owner(sandbox.id), sandbox.backend_ref)
    assert sandbox.expires_at is not None
    until = sandbox.expires_at + timedelta(seconds=core.tuning.backstop_seconds)
    if sandbox.lease_ends_at is not None and sandbox.lease_ends_at <= core.clock.now():
        calling(adapter, lambda: adapter.get(target))  # a backend that refuses to renew may hide that it is gone
    if sandbox.renew_at is not None:
        try:
            return calling(adapter, lambda: adapter.renew(target, until))
        except NotFound:
            raise
        except DifferentlyError as error:
            if isinstance(error, BackendError) and error.settled:
                raise
            log.info("renewal looked at", extra={"sandbox": sandbox.id, "error": error.message})
    seen: Instance = calling(adapter, lambda: adapter.get(target))
    return seen.expires_at


def _write(core: Core, sandbox: Sandbox, adapter: Adapter, ends_at: datetime | None) -> None:
    after = told(core, sandbox, adapter, ends_at)
    if ends_at is not None and ends_at <= core.clock.now():
        after = after.with_(renew_at=core.after(core.tuning.renew_seconds_min))  # it should be gone; look again soon
    core.store.transact([write(sandbox, times.at_large(core, after))[1]])


def _later(core: Core, sandbox: Sandbox) -> None:
    """While the backend cannot be asked; more and more often as the end comes near."""
    left = (sandbox.lease_ends_at or core.clock.now()) - core.clock.now()
    seconds = min(max(left.total_seconds() / 2, core.tuning.renew_seconds_min), core.tuning.queue_look_seconds)
    core.store.transact([write(sandbox, times.at_large(core, sandbox.with_(renew_at=core.after(seconds))))[1]])


def lapse_code(core: Core, sandbox: Sandbox) -> str:
    """Why an instance that is gone is gone."""
    ends = sandbox.lease_ends_at
    return "lease_lost" if ends is not None and ends <= core.clock.now() else "instance_lost"


def _lost(core: Core, sandbox: Sandbox, error: NotFound) -> None:
    """Its lease is over by what the backend told, and it is not there: both together are proof enough."""
    if sandbox.status not in LIVE:
        return
    reason = Reason(code="lease_lost", source="backend", detail=error.message, at=core.clock.now())
    attempt = newest(core, sandbox)
    if isinstance(end(core, LEASES, sandbox, Status.FAILED, reason, attempt, proved=False), Committed):
        if attempt is not None:
            core.nudges.cleanup(sandbox.id, attempt.number)
        core.nudges.dispatch()
