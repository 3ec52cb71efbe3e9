"""What must hold of usage (I17): intervals add up to the time that sandboxes were counted, with no gap and no overlap.

The time of a transition is that of its event, which the log keeps for other reasons too. Beside `monitor`, which tells
it of every write.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from differently_core.model.event import Event
from differently_core.model.record import Key, Record
from differently_core.model.sandbox import Sandbox
from differently_core.model.usage import Interval

from .processes import Violation

Change = tuple[Record | None, Record | None]
EACH = timedelta(seconds=1)
"""What one transition may be off by."""


def must(holds: bool, what: str) -> None:
    if not holds:
        raise Violation(f"I17: {what}")


@dataclass
class Ledger:
    """Of one sandbox: the time that it was counted by its events, and by its intervals."""

    since: datetime | None = None
    counted: timedelta = timedelta()
    measured: timedelta = timedelta()
    until: datetime | None = None
    """Where the last interval ended."""
    transitions: int = 0


def is_counted(sandbox: Sandbox | None) -> bool:
    """Its organization is charged for it."""
    return sandbox is not None and sandbox.reservation is not None and sandbox.reservation.tenant


class Metering:
    def __init__(self) -> None:
        self.ledgers: defaultdict[str, Ledger] = defaultdict(Ledger)

    def committed(self, changes: Sequence[Change]) -> None:
        events = {after.target: after.at for _, after in changes if isinstance(after, Event)}
        for before, after in changes:
            if isinstance(after, Interval):
                must(before is None, f"an interval of {after.sandbox} was changed")
                self._measured(after)
        for before, after in changes:
            if isinstance(after, Sandbox):
                assert before is None or isinstance(before, Sandbox)
                self._moved(before, after, events)

    def _measured(self, interval: Interval) -> None:
        ledger = self.ledgers[interval.sandbox]
        must(interval.since < interval.until, f"{interval.sandbox}: an interval from {interval.since} that is empty")
        overlaps = ledger.until is not None and interval.since < ledger.until
        must(not overlaps, f"{interval.sandbox}: from {interval.since}, and one before it until {ledger.until}")
        ledger.until = interval.until
        if not interval.kept:
            ledger.measured += interval.until - interval.since

    def _moved(self, before: Sandbox | None, after: Sandbox, events: Mapping[str, datetime]) -> None:
        active = after.meter is not None and not after.meter.kept
        must(active == is_counted(after), f"{after.id} is {after.status}, counted: {active}")
        if is_counted(before) is is_counted(after):
            return
        at = events.get(after.id)
        must(at is not None, f"{after.id} -> {after.status} changes what is counted, and no event says when")
        assert at is not None
        ledger = self.ledgers[after.id]
        ledger.transitions += 1
        if ledger.since is None:
            ledger.since = at
            return
        ledger.counted += max(timedelta(), at - ledger.since)
        ledger.since = None
        off = abs(ledger.measured - ledger.counted)
        allowed = EACH * ledger.transitions
        must(off <= allowed, f"{after.id} was counted for {ledger.counted}, and its usage is {ledger.measured}")

    def check_everything(self, stored: Iterable[Record]) -> None:
        """The sums from the start, and the open meters against the last intervals."""
        rows = list(stored)
        measured: defaultdict[str, timedelta] = defaultdict(timedelta)
        for row in rows:
            if isinstance(row, Interval) and not row.kept:
                measured[row.sandbox] += row.until - row.since
        for row in rows:
            if not isinstance(row, Sandbox):
                continue
            ledger = self.ledgers[row.id]
            must(measured[row.id] == ledger.measured, f"the running sum of {row.id} is wrong")
            if row.meter is not None and ledger.until is not None:
                must(row.meter.since >= ledger.until, f"{row.id} is counted twice since {row.meter.since}")

    def take_over(self, rows: Mapping[Key, Record]) -> None:
        """Begin with a store that has rows already; in none of them anything is counted yet."""
        must(not any(isinstance(row, Sandbox) and row.meter for row in rows.values()), "something is counted already")
