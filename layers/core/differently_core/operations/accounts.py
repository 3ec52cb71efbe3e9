"""Taking from counters and giving back, as actions for a transaction."""

from __future__ import annotations

from collections.abc import Iterable

from ..model.quota import Counter, Scope
from ..model.resources import DIMENSIONS, Size
from ..model.sandbox import Reservation, Sandbox
from ..store.ports import AtLeast, Check, Condition, Missing, Update


def name_of(scope: Scope, name: str) -> str:
    """How a counter is named in a transaction and in its refusal."""
    return f"{scope}:{name}"


def take(
    scope: Scope, name: str, need: Size, *, overtake: bool = False, closed_too: bool = False
) -> Update:  # fmt: skip
    """Charge a counter, if it has room, (unless `closed_too`) is open, and (unless `overtake`) nobody waits for it."""
    when: list[Condition] = [
        AtLeast(f"free_{dimension}", getattr(need, dimension))
        for dimension in DIMENSIONS
        if getattr(need, dimension) > 0
    ]
    if not closed_too:
        when.append(Missing("closed"))
    if not overtake:
        when.append(Missing("waiting"))
    return _change(scope, name, need, -1, tuple(when))


def is_open(scope: Scope, name: str) -> Check:
    """That a counter admits anything at all, whatever room it has."""
    return Check(Counter, Counter.key_of(scope, name), name_of(scope, name), (Missing("closed"),))


def give(scope: Scope, name: str, amount: Size) -> Update:
    return _change(scope, name, amount, 1, ())


def _change(scope: Scope, name: str, amount: Size, sign: int, when: tuple[Condition, ...]) -> Update:
    add = {f"free_{key}": sign * getattr(amount, key) for key in DIMENSIONS if getattr(amount, key)}
    add["moves"] = 1
    return Update(Counter, Counter.key_of(scope, name), name_of(scope, name), add=add, when=when)


def scopes(sandbox: Sandbox, reservation: Reservation) -> Iterable[tuple[Scope, str]]:
    """Every counter that a reservation holds."""
    if reservation.tenant:
        yield Scope.ORG, sandbox.org
        yield Scope.PROJECT, sandbox.project
    if reservation.pool is not None:
        yield Scope.POOL, reservation.pool


def give_back(sandbox: Sandbox, *, keep_pool: bool = False) -> list[Update]:
    """Return what the sandbox holds; `keep_pool` leaves the pool's slot with an attempt in debt.

    The same transaction must clear or shrink `sandbox.reservation`, so that it happens exactly once.
    """
    held = sandbox.reservation
    if held is None:
        return []
    return [
        give(scope, name, held.size) for scope, name in scopes(sandbox, held) if not (keep_pool and scope is Scope.POOL)
    ]
