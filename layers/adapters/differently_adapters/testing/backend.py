"""What the suite does to the system behind an adapter. Failures are injected there, never into the adapter."""

from __future__ import annotations

from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Protocol

from differently_core.contract import Operation, Owner, Target


class CannotHappen(Exception):
    """A backend raises it, with the reason as a sentence, for what cannot befall it; the test is skipped with that."""


class Mishap(StrEnum):
    """What `arrange` lets happen. `settle` ends those that last."""

    NO_ROOM = "the next create finds no room"
    INSTANCE_FAILS = "the instance of the next create fails, on a backend that is well"
    REQUEST_REFUSED = "the next create can never succeed, as with an image that does not exist"
    BOOTSTRAP_FAILS = "the next create makes an instance, and a later step of it fails"
    CREDENTIAL_REVOKED = "until come_up the credential is rejected"
    DELETE_CONFLICTS = "until settle a delete is begun, and this and later ones are answered with a conflict"
    PAGE_LOST = "the second page of the next list never comes"
    CURSOR_REPEATED = "the second page of the next list leads to itself"
    PAGES_OVERLAP = "an entry of the next list stands on two pages"
    FILTER_IGNORED = "the next list holds everybody's instances"
    PAUSE_HANGS = "the next pause is accepted and done only by settle, after any deadline"
    PAUSE_REVERTS = "the next pause is accepted, fails half way, and the instance runs as before"
    SNAPSHOT_FAILS = "the next snapshot fails"
    RESTORE_FAILS = "every snapshot that there is says it is ready, and no instance can be made of it"
    EGRESS_UNCONFIRMED = "the next egress rules are accepted and not put in force"
    FALLS_ASLEEP = "every instance is put to sleep by the backend itself, to wake when it is used"


class BackendUnderTest(Protocol):
    """Needed by every test class: `count`, `go_down`, `come_up`, `plant_foreign`, `lose_answer`, `state_digest`.

    The rest may raise `CannotHappen`. The suite asks nothing of it that the adapter's declaration rules out.
    """

    def count(self) -> int:
        """Instances that exist now, whoever owns them, by the backend's own view."""
        ...

    def snapshots(self) -> int:
        """Snapshots that exist now."""
        ...

    def state_digest(self) -> str:
        """A text that is another one after any change of what the backend keeps: instances, snapshots, expiries."""
        ...

    def requests(self, operation: Operation) -> int:
        """How often the backend was asked for this operation's effect so far; looking does not count."""
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
        """Let the declared settling time pass, and what was arranged to last come to its end."""
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

    def arrange(self, mishap: Mishap) -> None: ...

    def go_down(self) -> None:
        """Until `come_up`, nothing can be reached."""
        ...

    def come_up(self) -> None: ...
