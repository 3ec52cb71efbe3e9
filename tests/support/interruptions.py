"""Somebody else acts just when an operation is about to write: races, told as a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Action, Outcome


class Interrupted:
    """A store that lets `interrupt` run once, before the first transaction with an action of that name."""

    def __init__(self, memory: MemoryStore) -> None:
        self._memory = memory
        self._name = ""
        self._interrupt: Callable[[], object] | None = None

    def before(self, name: str, interrupt: Callable[[], object]) -> None:
        """`name` is how the action's name begins."""
        self._name, self._interrupt = name, interrupt

    def transact(self, actions: Sequence[Action]) -> Outcome:
        if self._interrupt is not None and any(action.name.startswith(self._name) for action in actions):
            interrupt, self._interrupt = self._interrupt, None
            interrupt()
        return self._memory.transact(actions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)
