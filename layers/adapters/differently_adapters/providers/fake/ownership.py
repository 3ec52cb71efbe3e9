"""From a target to its instance: whose it is, is checked on the instance itself."""

from __future__ import annotations

from differently_core.contract import Instance, InstanceState, Target
from differently_core.errors import InvalidState, NotFound

from .backend import FakeBackend
from .instances import FakeInstance


def all_of(backend: FakeBackend, target: Target) -> list[FakeInstance]:
    """What a delete means: one instance by its ref, else everything that carries the owner."""
    if target.ref is None:
        return backend.owned(target.owner)
    found = backend.find(target.ref)
    if found is None:
        return []
    if found.owner != target.owner:
        raise _missing(target)
    return [found]


def find(backend: FakeBackend, target: Target) -> FakeInstance:
    """By its ref; without one the oldest that lists show, a living one before a leaving one."""
    if target.ref is not None:
        found = backend.find(target.ref)
        if found is None or found.owner != target.owner:
            raise _missing(target)
        return found
    now = backend.clock.monotonic()
    listed = [instance for instance in backend.owned(target.owner) if instance.listed_at <= now]
    if not listed:
        raise _missing(target)
    return min(listed, key=lambda instance: instance.deleting)


def in_use(backend: FakeBackend, target: Target) -> FakeInstance:
    """The instance for a command or a file; one that sleeps by itself wakes."""
    found = find(backend, target)
    now = backend.clock.monotonic()
    if found.move is not None:
        raise InvalidState(f"The instance is in the middle of {found.move.operation}.")
    if found.state_at(now) is InstanceState.RUNNING or found.is_idle(now):
        found.used_at = now
        return found
    raise InvalidState(f"The instance is {found.state_at(now)}.")


def seen(backend: FakeBackend, instance: FakeInstance) -> Instance:
    """What the backend tells of it; looking changes nothing."""
    now = backend.clock.monotonic()
    return Instance(
        instance.ref, instance.owner, instance.state_at(now), prepared="labels",
        incarnation=str(instance.incarnation), expires_at=instance.expires_at, idle=instance.is_idle(now),
    )  # fmt: skip


def _missing(target: Target) -> NotFound:
    return NotFound(f"Sandbox {target.owner.sandbox} has no such instance.")
