"""What must come right by itself once nothing goes wrong any more."""

from __future__ import annotations

from differently_adapters.providers.fake.network import open_ports
from differently_core.contract import InstanceState, Owner
from differently_core.model.attempt import Attempt, AttemptState
from differently_core.model.closing import Closing
from differently_core.model.policy import GLOBAL, Policy
from differently_core.model.pool import Pool, PoolView, Template
from differently_core.model.port import OpenPort, PortStatus
from differently_core.model.queue import QueueRow
from differently_core.model.quota import Counter, Scope
from differently_core.model.record import Key, Record
from differently_core.model.resources import DIMENSIONS
from differently_core.model.sandbox import ENDED, ON_THE_WAY, Sandbox, Status
from differently_core.model.snapshot import Snapshot, SnapshotStatus, SnapshotTally, SnapshotUse
from differently_core.operations.wishes import wish_of
from differently_core.policy.placement import Candidate, Rules, place
from differently_core.runtime.ids import SandboxId

from .installation import ANOTHER, Installation
from .monitor import must

PASSING_SNAPSHOTS = frozenset({SnapshotStatus.CREATING, SnapshotStatus.DELETING})
PASSING = frozenset({Status.PROVISIONING, Status.TERMINATING}) | ON_THE_WAY


def unrest(world: Installation) -> list[str]:
    """What should have come right by now, although sandboxes still run."""
    found: list[str] = []
    for row in world.monitor.rows.values():
        if isinstance(row, Sandbox) and row.status in PASSING:
            found.append(f"{row.id} is still {row.status}")
        elif isinstance(row, Attempt) and row.status in (AttemptState.CALLING, AttemptState.DEBT):
            found.append(f"attempt {row.number} of {row.sandbox} is still {row.status}")
        elif isinstance(row, Snapshot) and _is_stuck(world, row):
            found.append(f"{row.id} is still {row.status}")
        elif isinstance(row, OpenPort) and row.status is not PortStatus.OPEN:
            found.append(f"port {row.port} of {row.sandbox} is still {row.status}")
        elif isinstance(row, Sandbox) and row.awaits_snapshot and row.status is Status.QUEUED:
            found.append(f"{row.id} still awaits its snapshot")
        elif isinstance(row, Sandbox) and row.status is Status.QUEUED and _fits(world, row) is not None:
            found.append(f"{row.id} waits, and {_fits(world, row)} has room")
    return found + _open_for_nothing(world)


def _is_stuck(world: Installation, snapshot: Snapshot) -> bool:
    """One that is to go waits for the sandboxes that are being made from it, and these may wait for room."""
    return snapshot.status in PASSING_SNAPSHOTS and not world.monitor.keeping.uses.get(snapshot.id)


def _open_for_nothing(world: Installation) -> list[str]:
    """Ports that can be reached although nobody has them any more, or what they led to no longer runs."""
    rows = world.monitor.rows
    found: list[str] = []
    for backend in world.backends:
        for instance in backend.instances():
            identity = SandboxId(instance.owner.sandbox)
            for port in open_ports(backend, instance):
                sandbox = rows.get(Sandbox.key_of(identity))
                running = isinstance(sandbox, Sandbox) and sandbox.status is Status.RUNNING
                if OpenPort.key_of(identity, port) not in rows or not running:
                    found.append(f"port {port} of {identity} can be reached")
    return found


def strays(world: Installation) -> list[str]:
    """I1: the instance that was handed out is there, runs, and is the only one; where it is not, a reconciler acts."""
    found: list[str] = []
    for row in world.monitor.rows.values():
        if isinstance(row, Sandbox) and row.status is Status.RUNNING:
            owner = Owner(world.monitor.ours, row.id)
            assert row.pool is not None
            its_backend = world.monitor.backend_of(row.pool).name
            instances = [
                (backend.name, instance.ref, instance.state)
                for backend in world.backends
                for instance in backend.owned(owner)
            ]
            if instances != [(its_backend, row.backend_ref, InstanceState.RUNNING)]:
                found.append(f"{row.id} runs as {row.backend_ref} on {its_backend}, and has {instances}")
    return found


def remains(world: Installation) -> list[str]:
    """What must be gone when everything has ended."""
    found: list[str] = []
    for row in world.monitor.rows.values():
        if isinstance(row, Sandbox) and row.status not in ENDED:
            found.append(f"{row.id} is {row.status}")
        elif isinstance(row, Attempt) and row.status is not AttemptState.SETTLED:
            found.append(f"attempt {row.number} of {row.sandbox} is {row.status}")
        elif isinstance(row, (Snapshot, SnapshotUse, OpenPort)):
            found.append(f"there is still {row.key().pk} {row.key().sk}")
        elif isinstance(row, SnapshotTally) and (row.count, row.bytes) != (0, 0):
            found.append(f"{row.scope} {row.name} counts {row.count} snapshots of {row.bytes} bytes")
        elif isinstance(row, QueueRow):
            found.append(f"{row.sandbox} is in the queue")
        elif isinstance(row, Closing) and row.due_at is not None:
            found.append(f"{row.tenant} is not {row.target} yet: {row.waits_for}")
        elif isinstance(row, Counter) and any(getattr(row.held, name) for name in DIMENSIONS):
            found.append(f"{row.scope} {row.name} counts {row.held} as held")
    return found + _leftovers(world)


def _leftovers(world: Installation) -> list[str]:
    found: list[str] = []
    for backend in world.backends:
        instances = backend.instances()
        foreign = [instance for instance in instances if instance.owner.installation == ANOTHER]
        must(len(foreign) == 1, "I2", f"another installation's instance is gone from {backend.name}")
        found += [
            f"{instance.ref} of {instance.owner.sandbox} is left on {backend.name}"
            for instance in instances
            if instance.owner.installation == world.monitor.ours
        ]
        found += [
            f"snapshot {kept.ref} of {kept.operation} is left on {backend.name}"
            for kept in backend.snapshots()
            if kept.owner.installation == world.monitor.ours
        ]
    return found


def _fits(world: Installation, sandbox: Sandbox) -> str | None:
    """A pool that could take a queued sandbox now, by what the store says."""
    rows = world.monitor.rows
    tenant = (_counter(rows, Scope.ORG, sandbox.org), _counter(rows, Scope.PROJECT, sandbox.project))
    if not all(sandbox.size.fits_in(counter.free) for counter in tenant):
        return None
    policies = [rows.get(Policy.key_of(scope)) for scope in (GLOBAL, sandbox.org, sandbox.project)]
    rules = Rules([policy.rules for policy in policies if isinstance(policy, Policy)])
    if sandbox.move is not None:
        assert sandbox.pool is not None
        return sandbox.pool if sandbox.size.fits_in(_counter(rows, Scope.POOL, sandbox.pool).free) else None
    template = rows.get(Template.key_of(sandbox.template))
    candidates = []
    for pool in (row for row in rows.values() if isinstance(row, Pool)):
        view = rows.get(PoolView.key_of(pool.name))
        assert isinstance(view, PoolView)
        candidates.append(Candidate(pool, view, _counter(rows, Scope.POOL, pool.name).free))
    return place(wish_of(sandbox), candidates, rules, template if isinstance(template, Template) else None).chosen


def _counter(rows: dict[Key, Record], scope: Scope, name: str) -> Counter:
    found = rows.get(Counter.key_of(scope, name))
    assert isinstance(found, Counter)
    return found
