"""Taking from counters and giving back, as actions for a transaction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..model.attempt import Attempt
from ..model.quota import Counter, Scope
from ..model.resources import DIMENSIONS, Size
from ..model.sandbox import Reservation, Sandbox
from ..store.ports import AtLeast, Check, Condition, Missing, Update


def name_of(scope: Scope, name: str) -> str:
    """How a counter is named in a transaction and in its refusal."""
    return f"{scope}:{name}"


@dataclass(frozen=True)
class Spending:
    """What an admission takes from the budget of a counter, and on what conditions."""

    amount: int
    when: tuple[Condition, ...]


def take(
    scope: Scope, name: str, need: Size, *, overtake: bool = False, closed_too: bool = False,
    spending: Spending | None = None,
) -> Update:  # fmt: skip
    """Charge a counter, if it has room, (unless `closed_too`) is open, and (unless `overtake`) nobody waits for it.

    With `spending`, its budget too, if that has enough left.
    """
    when: list[Condition] = [
        AtLeast(f"free_{dimension}", getattr(need, dimension))
        for dimension in DIMENSIONS
        if getattr(need, dimension) > 0
    ]
    if not closed_too:
        when.append(Missing("closed"))
    if not overtake:
        when.append(Missing("waiting"))
    if spending is not None:
        when += spending.when
    return _change(scope, name, need, -1, tuple(when), spent=spending.amount if spending is not None else 0)


def is_open(scope: Scope, name: str) -> Check:
    """That a counter admits anything at all, whatever room it has."""
    return Check(Counter, Counter.key_of(scope, name), name_of(scope, name), (Missing("closed"),))


def retain(pool: str) -> Update:
    """Take a place for what is about to be kept there without running, if there is one."""
    return _change(Scope.POOL, pool, Size(), -1, (AtLeast("free_retained", 1),), places=-1)


def left_by(attempt: Attempt) -> list[Update]:
    """Return what an attempt in debt still holds; the same write must settle it."""
    if not attempt.holds_slot and not attempt.holds_place:
        return []
    slot = attempt.size if attempt.holds_slot else Size()
    return [_change(Scope.POOL, attempt.pool, slot, 1, (), places=1 if attempt.holds_place else 0)]


def _change(
    scope: Scope, name: str, amount: Size, sign: int, when: tuple[Condition, ...], *, places: int = 0,
    spent: int = 0,
) -> Update:  # fmt: skip
    add = {f"free_{key}": sign * getattr(amount, key) for key in DIMENSIONS if getattr(amount, key)}
    if places:
        add["free_retained"] = places
    if spent:
        add["spend_free"] = -spent
    add["moves"] = 1
    return Update(Counter, Counter.key_of(scope, name), name_of(scope, name), add=add, when=when)


def scopes(sandbox: Sandbox, reservation: Reservation) -> Iterable[tuple[Scope, str]]:
    """Every counter that a reservation holds."""
    if reservation.tenant:
        yield Scope.ORG, sandbox.org
        yield Scope.PROJECT, sandbox.project
    if reservation.pool is not None:
        yield Scope.POOL, reservation.pool


def give_back(sandbox: Sandbox, *, keep_pool: bool = False, rests: bool = False) -> list[Update]:
    """Return what the sandbox holds, its place among what is kept included; what it holds is `sandbox` as stored.

    `keep_pool` leaves what is its pool's with an attempt in debt. One that `rests` keeps its place, or takes one: it is
    there, whatever the bound. The same transaction must clear or shrink `reservation`, and write `retained`, so that it
    happens exactly once.
    """
    held = sandbox.reservation
    amounts = dict.fromkeys(scopes(sandbox, held), held.size) if held is not None else {}
    places = (0 if sandbox.retained else -1) if rests else (1 if sandbox.retained else 0)
    if sandbox.pool is not None:
        pool = (Scope.POOL, sandbox.pool)
        if keep_pool:
            amounts.pop(pool, None)
        elif places:
            amounts.setdefault(pool, Size())
    return [
        _change(scope, name, amount, 1, (), places=places if scope is Scope.POOL else 0)
        for (scope, name), amount in amounts.items()
    ]


def back_to_work(sandbox: Sandbox) -> list[Update]:
    """Return its place alone: it runs, with what it holds. The same write must clear `retained`."""
    if not sandbox.retained or sandbox.pool is None:
        return []
    return [_change(Scope.POOL, sandbox.pool, Size(), 1, (), places=1)]
