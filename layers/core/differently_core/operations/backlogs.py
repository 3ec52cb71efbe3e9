"""Exact bounds on how many sandboxes of an organization or project wait, where an operator set one (`maxQueued`).

Who begins to wait takes a place in each backlog that is bounded, in the transaction that writes its queue row, and has
it until it is admitted, rests again or ends; which ones it took is written on it, so that they are given back exactly
once. A backlog without a bound has no row and costs nothing: then all that begin to wait write rows that nobody shares
(`depths` keeps a guard on the whole).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..errors import QueueFull
from ..model.queue import Backlog, QueueRow
from ..model.quota import Scope
from ..model.record import Record
from ..model.sandbox import Sandbox
from ..store.ports import AtLeast, Update
from .core import Core


def name_of(scope: str, name: str) -> str:
    return f"backlog:{scope}:{name}"


def join(core: Core, sandbox: Sandbox, *, at_any_rate: bool = False) -> tuple[Sandbox, list[Update]]:
    """It begins to wait, with the places that it takes; one that must wait (`at_any_rate`) also over the bound."""
    bounded = tuple(scope.value for scope, limit in _limits(core, sandbox).items() if limit is not None)
    when = () if at_any_rate else (AtLeast("free", 1),)
    return sandbox.with_(backlogs=bounded), [_change(scope, name, -1, when) for scope, name in _named(sandbox, bounded)]


def leave(sandbox: Sandbox) -> list[Update]:
    """Return its places; the same write must clear `backlogs`."""
    return [_change(scope, name, 1, ()) for scope, name in _named(sandbox, sandbox.backlogs)]


def leave_together(sandboxes: Iterable[Sandbox]) -> list[Update]:
    """The same for several, each shared row once."""
    counts: dict[tuple[str, str], int] = {}
    for sandbox in sandboxes:
        for entry in _named(sandbox, sandbox.backlogs):
            counts[entry] = counts.get(entry, 0) + 1
    return [_change(scope, name, count, ()) for (scope, name), count in counts.items()]


def names(waiting: Sandbox | QueueRow) -> set[str]:
    """Of its places in a transaction."""
    return {name_of(scope, name) for scope, name in _named(waiting, waiting.backlogs)}


def check_open(core: Core, sandbox: Sandbox) -> None:
    """Raises `QueueFull` where nobody may wait at all; no trip with a warm catalog."""
    for scope, limit in _limits(core, sandbox).items():
        if limit == 0:
            raise _full(scope.value, 0, 0)


def is_shut(core: Core, sandbox: Sandbox) -> bool:
    return 0 in _limits(core, sandbox).values()


def check_joined(failed: Mapping[str, Record | None]) -> None:
    """Raises `QueueFull` if a backlog refused."""
    for name, row in failed.items():
        if name.startswith("backlog:") and isinstance(row, Backlog):
            raise _full(row.scope.value, row.waiting, row.limit)


def _full(scope: str, waiting: int, limit: int) -> QueueFull:
    whose = "organization" if scope == Scope.ORG else "project"
    return QueueFull(
        f"{waiting} sandboxes of this {whose} are waiting already, and its maxQueued is {limit}. Repeat the call when "
        "some have started, delete one that waits, or have an operator raise the limit.",
        scope=scope, waiting=waiting, limit=limit,
    )  # fmt: skip


def _limits(core: Core, sandbox: Sandbox) -> Mapping[Scope, int | None]:
    return {
        Scope.ORG: core.catalog.org(sandbox.org).limits.backlog_max,
        Scope.PROJECT: core.catalog.project(sandbox.org, sandbox.project).limits.backlog_max,
    }


def _named(waiting: Sandbox | QueueRow, scopes: Iterable[str]) -> list[tuple[str, str]]:
    return [(scope, waiting.org if scope == Scope.ORG else waiting.project) for scope in scopes]


def _change(scope: str, name: str, amount: int, when: tuple[AtLeast, ...]) -> Update:
    key = Backlog.key_of(Scope(scope), name)
    return Update(Backlog, key, name_of(scope, name), add={"free": amount, "moves": 1}, when=when)
