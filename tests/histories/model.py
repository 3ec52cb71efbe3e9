"""What the sandboxes of one Idempotency-Key may answer, and whether a recorded history can be explained by that.

A history is what clients saw: when each call began, when its answer came, and the answer, or that none came. It is
explained if the calls can be put into one order in which each happens at one moment between its beginning and its
answer, and each answer is what the model says at that moment. A call without an answer may have happened at any later
moment, or never. The search is that of Wing and Gong, with Lowe's memory of places where it has been.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf

SOME = "?"
"""A sandbox that a call without an answer made: its id is not known before somebody is told."""


class Kind(StrEnum):
    CREATE = "create"
    GET = "get"
    UPDATE = "update"
    DELETE = "delete"


class Told(StrEnum):
    """What an answer said, as far as the model cares."""

    MADE = "made"
    REPLAYED = "replayed"
    CONFLICT = "conflict"
    REFUSED = "refused"
    """Nothing was done, for a reason that has nothing to do with this key: no room."""
    LIVE = "live"
    GONE = "gone"
    MISSING = "missing"
    DONE = "done"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Call:
    client: int
    kind: Kind
    told: Told
    began: float
    ended: float
    """Infinite where no answer came."""
    sandbox: str = ""
    """The one that the call names, or that its answer names."""
    body: str = ""
    """Of a create."""
    label: str | None = None
    """What an update writes, and what a read, an update or a replay shows."""


@dataclass(frozen=True)
class State:
    """The live sandbox of a key, if there is one, and those that were."""

    sandbox: str | None = None
    body: str = ""
    label: str | None = None
    gone: frozenset[str] = frozenset()

    def bound(self, sandbox: str) -> State | None:
        """This state, if the live sandbox is or may be that one."""
        if self.sandbox == sandbox:
            return self
        if self.sandbox == SOME and sandbox not in self.gone:
            return State(sandbox, self.body, self.label, self.gone)
        return None


def after(state: State, call: Call) -> Iterator[State]:
    """The states that a call may leave, if it happens in this one with the answer that it had."""
    match call.kind:
        case Kind.CREATE:
            yield from _created(state, call)
        case Kind.GET:
            yield from _read(state, call)
        case Kind.UPDATE:
            yield from _updated(state, call)
        case Kind.DELETE:
            yield from _deleted(state, call)


def _created(state: State, call: Call) -> Iterator[State]:
    match call.told:
        case Told.UNKNOWN if state.sandbox is None:
            yield State(SOME, call.body, None, state.gone)
        case Told.MADE if state.sandbox is None and call.sandbox not in state.gone:
            yield State(call.sandbox, call.body, None, state.gone)
        case Told.REFUSED if state.sandbox is None:
            yield state
        case Told.REPLAYED | Told.CONFLICT:
            found = state.bound(call.sandbox)
            if found is not None and (found.body == call.body) is (call.told is Told.REPLAYED):
                yield found


def _read(state: State, call: Call) -> Iterator[State]:
    if call.told is Told.GONE and call.sandbox in state.gone:
        yield state
    found = state.bound(call.sandbox)
    if call.told is Told.LIVE and found is not None and found.label == call.label:
        yield found


def _updated(state: State, call: Call) -> Iterator[State]:
    found = state.bound(call.sandbox)
    if call.told in (Told.DONE, Told.UNKNOWN) and found is not None:
        yield State(found.sandbox, found.body, call.label, found.gone)
    if call.told is Told.GONE and call.sandbox in state.gone:
        yield state


def _deleted(state: State, call: Call) -> Iterator[State]:
    if call.told not in (Told.DONE, Told.UNKNOWN):
        return
    if call.sandbox in state.gone:
        yield state
    elif state.bound(call.sandbox) is not None:
        yield State(None, "", None, state.gone | {call.sandbox})


PLACES_MAX = 200_000
"""So many places may a search visit; histories of the length that we record take a few hundred."""


class Unexplained(AssertionError):
    """No order explains the history."""


def explain(history: Sequence[Call]) -> list[Call]:
    """An order that explains the history of one key; raises `Unexplained` with the place that it did not get past."""
    calls = sorted((call for call in history if call.told is not Told.UNKNOWN or call.kind is not Kind.GET), key=_began)
    needed = sum(1 << at for at, call in enumerate(calls) if call.told is not Told.UNKNOWN)
    seen: set[tuple[int, State]] = set()
    furthest: list[Call] = []
    stack: list[tuple[int, State, tuple[int, ...]]] = [(0, State(), ())]
    while stack:
        done, state, order = stack.pop()
        if done & needed == needed:
            return [calls[at] for at in order]
        if (done, state) in seen:
            continue
        seen.add((done, state))
        if len(seen) > PLACES_MAX:
            raise RuntimeError(f"a history of {len(calls)} calls is too long to explain")
        if len(order) > len(furthest):
            furthest = [calls[at] for at in order]
        for at in reversed(_next(calls, done)):
            stack.extend((done | 1 << at, then, (*order, at)) for then in after(state, calls[at]))
    raise Unexplained(_story(calls, furthest))


def _began(call: Call) -> float:
    return call.began


def _next(calls: Sequence[Call], done: int) -> list[int]:
    """Who may be next: every call that began before the first answer that is still to come."""
    horizon = inf
    found: list[int] = []
    for at, call in enumerate(calls):
        if done >> at & 1:
            continue
        if call.began > horizon:
            break
        found.append(at)
        horizon = min(horizon, call.ended)
    return [at for at in found if calls[at].began <= horizon]


def _story(calls: Sequence[Call], furthest: Sequence[Call]) -> str:
    left = [call for call in calls if call not in furthest][:12]
    lines = ["explained so far:", *(f"  {call}" for call in furthest[-12:]), "and then none of:"]
    return "\n".join([*lines, *(f"  {call}" for call in left)])
