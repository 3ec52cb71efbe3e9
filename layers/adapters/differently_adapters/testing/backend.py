"""What the suite does to the system behind an adapter. Failures are injected there, never into the adapter."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from differently_core.contract import Operation, Owner, Target


class BackendUnderTest(Protocol):
    def count(self) -> int:
        """Instances that exist now, whoever owns them, by the backend's own view."""
        ...

    def lose_answer(self, operation: Operation) -> None:
        """The next call of this operation takes effect and its answer never comes.

        Where nothing lies between adapter and backend it may do nothing: the suite then throws the answer away, as
        a client does that dies before it reads it.
        """
        ...

    def delay_create(self) -> None:
        """The next create fails without an answer and its instance turns up within the declared settling time."""
        ...

    def settle(self) -> None:
        """Let the declared settling time pass."""
        ...

    def losing_completions(self) -> AbstractContextManager[None]:
        """Inside, commands run and how they ended is not told."""
        ...

    def plant_foreign(self, ours: Owner, theirs: Owner) -> Target:
        """Make an instance of `theirs` that carries the name, or lies at the place, that one of `ours` would.

        Returns how we would address it if we trusted that name: `ours` as the owner, the instance's ref if it has one.
        """
        ...

    def break_list(self) -> None:
        """The next list cannot be read to its end."""
        ...

    def go_down(self) -> None:
        """Until `come_up`, nothing can be reached."""
        ...

    def come_up(self) -> None: ...
