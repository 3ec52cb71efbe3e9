"""What can befall one call at the fake backend. Each is something that clouds were seen to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from differently_core.contract import Operation, Owner
from differently_core.errors import DifferentlyError, ProviderUnavailable


def _outage() -> DifferentlyError:
    return ProviderUnavailable("The backend refused the call.", settled=True)


@dataclass(frozen=True)
class Refuse:
    """The backend says no and nothing happened. By default an outage that is known to have had no effect."""

    error: DifferentlyError = field(default_factory=_outage)


@dataclass(frozen=True)
class LoseAnswer:
    """The call takes effect and its answer never comes. The caller waits `seconds`; `inf` hangs until its deadline."""

    seconds: float = 0.0


@dataclass(frozen=True)
class LoseCall:
    """The call never arrives, which its caller cannot tell from a lost answer."""

    seconds: float = 0.0


@dataclass(frozen=True)
class Late:
    """The call fails without an answer and takes effect `seconds` later; a create or delete within the settling time.

    For create, delete, stop, start, pause, resume and snapshot.
    """

    seconds: float


@dataclass(frozen=True)
class Slow:
    """The call takes `seconds` longer. Past its deadline the caller gives up, and the effect comes all the same.

    A pause, resume or snapshot is told to be under way then; `inf` ends when the backend heals.
    """

    seconds: float


@dataclass(frozen=True)
class Pending:
    """A create answers at once with an instance that runs `seconds` later; `inf` is never."""

    seconds: float


@dataclass(frozen=True)
class Unlisted:
    """A create succeeds, and only its ref finds the instance for `seconds`: lists lag behind."""

    seconds: float


@dataclass(frozen=True)
class Fail:
    """A create fails. With `leaves` a failed instance stays behind and has to be removed."""

    leaves: bool = True


@dataclass(frozen=True)
class Duplicate:
    """A create makes two instances and tells of one."""


@dataclass(frozen=True)
class Linger:
    """A delete is accepted and the instance stays for `seconds`, `inf` being until the backend heals.

    With `conflict` this delete and all others until then are answered with `InvalidState`.
    """

    seconds: float
    conflict: bool = False


@dataclass(frozen=True)
class Vanish:
    """The instance disappears just before the call arrives."""


@dataclass(frozen=True)
class Revert:
    """A stop, start, pause or resume is accepted, fails half way, and `seconds` later all is as it was.

    A snapshot is then a failed one.
    """

    seconds: float = 0.0


@dataclass(frozen=True)
class Ignored:
    """The call is accepted and nothing ever comes of it: stop, start, pause, resume, egress rules, a port."""


@dataclass(frozen=True)
class TooLate:
    """A pause cannot be called off any more and goes on."""


@dataclass(frozen=True)
class Broken:
    """A snapshot is told to be ready, and no instance can be made of it."""


@dataclass(frozen=True)
class Partly:
    """A batch observation tells these errors, by sandbox, and the truth of the others."""

    errors: Mapping[str, DifferentlyError]


@dataclass(frozen=True)
class LosePage:
    """A list's page never comes; they count from 1."""

    number: int = 2


@dataclass(frozen=True)
class RepeatCursor:
    """A list leads from its second page back to it, again and again."""


@dataclass(frozen=True)
class OverlapPages:
    """A list shows the last entry of each page again on the next one."""


@dataclass(frozen=True)
class IgnoreFilter:
    """A list holds everybody's instances."""


Fault = (
    Refuse | LoseAnswer | LoseCall | Late | Slow | Pending | Unlisted | Fail | Duplicate | Linger | Vanish
    | Revert | Ignored | TooLate | Broken | Partly | LosePage | RepeatCursor | OverlapPages | IgnoreFilter
)  # fmt: skip


@dataclass(frozen=True)
class Call:
    """What a plan decides on. `number` counts the calls of this operation, from 1; `at` is the backend's monotonic."""

    operation: Operation
    owner: Owner | None
    number: int
    at: float


Plan = Callable[[Call], Fault | None]
