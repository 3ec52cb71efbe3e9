"""Every order in which the steps of a few operations can follow each other, as far as the order matters.

Each operation runs in a thread of its own, and one of them at a time: it stops before each call of the store and of a
backend, and says which rows and backends that call will touch. The search makes one run for each order, and leaves out
an order that differs from another one only by neighbours which touch nothing in common (Godefroid's sleep sets): those
two end alike, whatever comes between.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from differently_adapters.providers.fake import FakeAdapter, FakeBackend, FakeConfig
from differently_core.contract import AdapterContext
from differently_core.model.record import Key, Record, Table
from differently_core.store.checks import key_of
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Action, Check, Committed, Outcome, R

from .processes import Killed

T = TypeVar("T")


class Touch(NamedTuple):
    what: str
    """A row, a whole table, or a backend."""
    writes: bool


Footprint = frozenset[Touch]
BACKEND = "backend"
LOOKING = frozenset({"info", "capabilities", "capacity", "health", "get", "list", "exec", "snapshot_get"})
"""Operations of a backend that change nothing there."""
TOUCHING = LOOKING | {
    "create", "delete", "stop", "start", "pause", "resume", "snapshot", "snapshot_delete", "port_expose",
    "port_revoke", "call_off", "renew", "egress_set",
}  # fmt: skip


def apart(one: Footprint, other: Footprint) -> bool:
    """Whether two calls end alike in either order."""
    return not any(
        (mine.writes or theirs.writes) and _meets(mine.what, theirs.what) for mine in one for theirs in other
    )


def _meets(one: str, other: str) -> bool:
    """A table's name is the beginning of the name of each of its rows."""
    return one.startswith(other) or other.startswith(one)


class Turns:
    """Lets one operation go on at a time."""

    def __init__(self, acts: Mapping[str, Callable[[], object]]) -> None:
        self.pending: dict[str, Footprint] = {}
        """Who waits, and what its next call touches."""
        self.faults: list[str] = []
        self._killing = False
        self._current = ""
        self._back = threading.Semaphore(0)
        self._go = {name: threading.Semaphore(0) for name in acts}
        self._threads = {
            name: threading.Thread(target=self._run, args=(name, act), daemon=True) for name, act in acts.items()
        }

    def begin(self) -> None:
        """Let each come to its first call."""
        for name, thread in self._threads.items():
            self._current = name
            thread.start()
            self._back.acquire()
        self._current = ""

    def _run(self, name: str, act: Callable[[], object]) -> None:
        try:
            act()
        except Killed:
            pass
        except BaseException as error:
            self.faults.append(f"{name}: {type(error).__name__}: {error}")
        self._back.release()

    def stop_before(self, footprint: Footprint) -> None:
        """Called by an operation, in its own thread, when it comes to such a call."""
        name = self._current
        if not name:
            return  # somebody who is none of them: the stage, or a check
        if self._killing:
            raise Killed
        self.pending[name] = footprint
        self._back.release()
        self._go[name].acquire()
        if self._killing:
            raise Killed

    def step(self, name: str) -> None:
        del self.pending[name]
        self._current = name
        self._go[name].release()
        self._back.acquire()
        self._current = ""

    def close(self) -> None:
        self._killing = True
        for name in list(self.pending):
            self.step(name)
        for thread in self._threads.values():
            thread.join()


class SteppedStore:
    """Tells before each call what it will touch. Nothing that runs here writes configuration: reading it is no step."""

    def __init__(self, memory: MemoryStore) -> None:
        self._memory = memory
        self.turns: Turns | None = None
        self.watcher: Callable[[Sequence[Action]], None] | None = None

    def get(self, record: type[R], key: Key) -> R | None:
        self._stop(key)
        return self._memory.get(record, key)

    def batch_get(self, keys: Sequence[tuple[type[Record], Key]]) -> list[Record | None]:
        self._stop(*(key for _, key in keys))
        return self._memory.batch_get(keys)

    def query(self, table: Table, pk: str, **options: Any) -> Any:
        self._stop_at(table, f"{table}/{pk}/")
        return self._memory.query(table, pk, **options)

    def __getattr__(self, name: str) -> Any:
        """Queries of indexes, which any row may be in."""
        if name.startswith("query_"):
            self._stop_at(Table.STATE, f"{Table.STATE}/")
        return getattr(self._memory, name)

    def transact(self, actions: Sequence[Action]) -> Outcome:
        if self.turns is not None:
            self.turns.stop_before(
                frozenset(Touch(_name(key_of(action)), not isinstance(action, Check)) for action in actions)
            )
        outcome = self._memory.transact(actions)
        if isinstance(outcome, Committed) and self.watcher is not None:
            self.watcher(actions)
        return outcome

    def _stop(self, *keys: Key) -> None:
        touched = frozenset(Touch(_name(key), False) for key in keys if key.table is not Table.CONFIG)
        if touched and self.turns is not None:
            self.turns.stop_before(touched)

    def _stop_at(self, table: Table, what: str) -> None:
        if table is not Table.CONFIG and self.turns is not None:
            self.turns.stop_before(frozenset({Touch(what, False)}))


def _name(key: Key) -> str:
    return f"{key.table}/{key.pk}/{key.sk}"


class SteppedAdapter(FakeAdapter):
    """A backend call is one step: what it does, it does at once, and its answer comes with the next step."""

    def __init__(self, pool: str, installation: str, backend: FakeBackend) -> None:
        super().__init__(AdapterContext(pool, installation, FakeConfig(), backend.clock), backend)
        self.turns: Turns | None = None

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in TOUCHING:
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            if self.turns is not None:
                self.turns.stop_before(frozenset({Touch(f"{BACKEND}/{self.backend.name}/", name not in LOOKING)}))
            return found(*arguments, **options)

        return call


@dataclass
class Run:
    """A fresh world: the operations that are to run in it, and what must hold when they have."""

    acts: Mapping[str, Callable[[], object]]
    lead: Callable[[Turns | None], None]
    """Tells store and backends whose turn it is."""
    check: Callable[[], None]


@dataclass
class _Place:
    waiting: dict[str, Footprint]
    sleeping: dict[str, Footprint]
    chosen: str
    tried: dict[str, Footprint] = field(default_factory=dict)

    def go_on(self) -> bool:
        """Choose another one than before; False when there is none."""
        self.tried[self.chosen] = self.waiting[self.chosen]
        left = [name for name in self.waiting if name not in self.sleeping and name not in self.tried]
        self.chosen = left[0] if left else ""
        return bool(left)

    def asleep_after(self) -> dict[str, Footprint]:
        """Who need not be looked at behind this step, for it was looked at before it."""
        mine = self.waiting[self.chosen]
        return {name: other for name, other in (self.sleeping | self.tried).items() if apart(other, mine)}


class Broken(AssertionError):
    """An order in which something does not hold."""


def explore(prepare: Callable[[], Run], runs_max: int) -> int:
    """How many orders there are; raises `Broken` with the first that breaks something, or where there are too many."""
    places: list[_Place] = []
    for number in range(1, runs_max + 1):
        _one_run(prepare(), places)
        while places and not places[-1].go_on():
            places.pop()
        if not places:
            return number
    raise Broken(f"there are more than {runs_max} orders")


def _one_run(run: Run, places: list[_Place]) -> None:
    turns = Turns(run.acts)
    run.lead(turns)
    turns.begin()
    order: list[str] = []
    try:
        whole = _steps(turns, places, order)
        turns.close()
        run.lead(None)
        if turns.faults:
            raise Broken("; ".join(turns.faults))
        if whole:
            run.check()
    except BaseException as error:
        turns.close()
        raise Broken(f"{' '.join(order)}: {error}") from error


def _steps(turns: Turns, places: list[_Place], order: list[str]) -> bool:
    """Go the way that `places` say, and on from there; False where all that is left was looked at elsewhere."""
    while turns.pending:
        if len(order) == len(places):
            sleeping = places[-1].asleep_after() if places else {}
            awake = [name for name in turns.pending if name not in sleeping]
            if not awake:
                return False
            places.append(_Place(dict(turns.pending), sleeping, awake[0]))
        order.append(places[len(order)].chosen)
        turns.step(order[-1])
    return True


def pairs(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each with each, and with itself."""
    for at, one in enumerate(names):
        for other in names[at:]:
            yield one, other
