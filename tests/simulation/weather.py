"""What goes wrong, and how often: drawn for each seed, so that some seeds meet one kind of fault a lot and others all.

Every kind of fault has a name; the coverage table counts by it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from math import inf

from differently_adapters.providers.fake import (
    Broken,
    Call,
    Duplicate,
    Fail,
    FakeBackend,
    Fault,
    Ignored,
    Late,
    Linger,
    LoseAnswer,
    LoseCall,
    Pending,
    Refuse,
    Revert,
    Slow,
    TooLate,
    Unlisted,
    Vanish,
)
from differently_core.contract import Operation
from differently_core.errors import (
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    ProviderUnavailable,
    SandboxFailed,
)

SEAMS: Mapping[str, tuple[float, float]] = {
    "pause": (0.02, 0.35),
    "crash_before_write": (0.0, 0.01),
    "crash_during_write": (0.0, 0.01),
    "crash_after_write": (0.0, 0.02),
    "crash_before_call": (0.0, 0.02),
    "crash_after_call": (0.0, 0.04),
    "store_throttled": (0.0, 0.02),
    "write_answer_lost": (0.0, 0.02),
    "write_never_arrived": (0.0, 0.01),
    "read_unanswered": (0.0, 0.01),
    "stale_index": (0.0, 0.1),
    "message_lost": (0.0, 0.4),
    "message_doubled": (0.0, 0.3),
    "answer_overtaken_by_deadline": (0.0, 0.02),
    "adapter_bug_before": (0.0, 0.02),
    "adapter_bug_after": (0.0, 0.02),
}
"""Kinds of fault at the seams, with the least and the greatest rate that a seed can draw."""

_CREATE: Mapping[str, Callable[[random.Random, FakeBackend], Fault]] = {
    "create_no_room": lambda rng, backend: Refuse(InsufficientCapacity("The backend is full.")),
    "create_no_room_unknown": lambda rng, backend: Refuse(InsufficientCapacity("Full, maybe.", settled=False)),
    "create_failed": lambda rng, backend: Fail(leaves=False),
    "create_failed_leaves": lambda rng, backend: Fail(leaves=True),
    "create_invalid": lambda rng, backend: Refuse(InvalidRequest("There is no such image.")),
    "create_conflict": lambda rng, backend: Refuse(InvalidState("The name is being freed.")),
    "create_refused": lambda rng, backend: Refuse(),
    "create_answer_lost": lambda rng, backend: LoseAnswer(rng.choice((0.0, 1.0, inf))),
    "create_never_arrived": lambda rng, backend: LoseCall(rng.choice((0.0, inf))),
    "create_late": lambda rng, backend: Late(rng.uniform(0.1, backend.settles_seconds)),
    "create_slow": lambda rng, backend: Slow(rng.uniform(1.0, backend.settles_seconds)),
    "create_pending": lambda rng, backend: Pending(rng.choice((1.0, 20.0, 100.0, inf))),
    "create_unlisted": lambda rng, backend: Unlisted(rng.uniform(0.1, backend.settles_seconds)),
    "create_duplicate": lambda rng, backend: Duplicate(),
}
_GET: Mapping[str, Callable[[random.Random, FakeBackend], Fault]] = {
    "get_refused": lambda rng, backend: Refuse(),
    "get_answer_lost": lambda rng, backend: LoseAnswer(rng.choice((0.0, inf))),
    "get_vanished": lambda rng, backend: Vanish(),
}
_DELETE: Mapping[str, Callable[[random.Random, FakeBackend], Fault]] = {
    "delete_refused": lambda rng, backend: Refuse(),
    "delete_answer_lost": lambda rng, backend: LoseAnswer(rng.choice((0.0, inf))),
    "delete_never_arrived": lambda rng, backend: LoseCall(rng.choice((0.0, inf))),
    "delete_late": lambda rng, backend: Late(rng.uniform(0.1, backend.settles_seconds)),
    "delete_lingers": lambda rng, backend: Linger(rng.choice((5.0, 100.0, 3000.0))),
    "delete_never_ends": lambda rng, backend: Linger(inf, conflict=rng.random() < 0.5),
}
_EXEC: Mapping[str, Callable[[random.Random, FakeBackend], Fault]] = {
    "exec_refused": lambda rng, backend: Refuse(),
    "exec_answer_lost": lambda rng, backend: LoseAnswer(rng.choice((0.0, inf))),
    "exec_vanished": lambda rng, backend: Vanish(),
}


_CALL_OFF: Mapping[str, Callable[[random.Random, FakeBackend], Fault]] = {
    "call_off_too_late": lambda rng, backend: TooLate(),
    "call_off_refused": lambda rng, backend: Refuse(),
    "call_off_answer_lost": lambda rng, backend: LoseAnswer(rng.choice((0.0, inf))),
    "call_off_never_arrived": lambda rng, backend: LoseCall(rng.choice((0.0, inf))),
}
_RENEW: Mapping[str, Callable[[random.Random, FakeBackend], Fault]] = {
    "renew_refused": lambda rng, backend: Refuse(),
    "renew_answer_lost": lambda rng, backend: LoseAnswer(rng.choice((0.0, inf))),
    "renew_never_arrived": lambda rng, backend: LoseCall(rng.choice((0.0, inf))),
}


def _moves(name: str) -> Mapping[str, Callable[[random.Random, FakeBackend], Fault]]:
    return {
        f"{name}_refused": lambda rng, backend: Refuse(),
        f"{name}_failed": lambda rng, backend: Refuse(SandboxFailed("It cannot be done.", settled=True)),
        f"{name}_no_room": lambda rng, backend: Refuse(InsufficientCapacity("The backend is full.")),
        f"{name}_answer_lost": lambda rng, backend: LoseAnswer(rng.choice((0.0, 1.0, inf))),
        f"{name}_never_arrived": lambda rng, backend: LoseCall(rng.choice((0.0, inf))),
        f"{name}_late": lambda rng, backend: Late(rng.choice((1.0, 20.0, 200.0, 2000.0))),
        f"{name}_slow": lambda rng, backend: Slow(rng.choice((5.0, 50.0, 400.0))),
        f"{name}_reverts": lambda rng, backend: Revert(rng.choice((0.0, 5.0, 100.0))),
        f"{name}_ignored": lambda rng, backend: Ignored(),
        f"{name}_vanished": lambda rng, backend: Vanish(),
    }


_SNAPSHOT: Mapping[str, Callable[[random.Random, FakeBackend], Fault]] = {
    "snapshot_refused": lambda rng, backend: Refuse(),
    "snapshot_failed": lambda rng, backend: Refuse(SandboxFailed("It cannot be captured.", settled=True)),
    "snapshot_conflict": lambda rng, backend: Refuse(InvalidState("It is in transition.")),
    "snapshot_answer_lost": lambda rng, backend: LoseAnswer(rng.choice((0.0, 1.0, inf))),
    "snapshot_never_arrived": lambda rng, backend: LoseCall(rng.choice((0.0, inf))),
    "snapshot_late": lambda rng, backend: Late(rng.choice((1.0, 20.0, 2000.0))),
    "snapshot_slow": lambda rng, backend: Slow(rng.choice((5.0, 400.0, inf))),
    "snapshot_reverts": lambda rng, backend: Revert(rng.choice((0.0, 100.0))),
    "snapshot_broken": lambda rng, backend: Broken(),
    "snapshot_vanished": lambda rng, backend: Vanish(),
}


def _plain(name: str) -> Mapping[str, Callable[[random.Random, FakeBackend], Fault]]:
    return {
        f"{name}_refused": lambda rng, backend: Refuse(),
        f"{name}_answer_lost": lambda rng, backend: LoseAnswer(rng.choice((0.0, inf))),
        f"{name}_never_arrived": lambda rng, backend: LoseCall(rng.choice((0.0, inf))),
    }


_EGRESS_SET: Mapping[str, Callable[[random.Random, FakeBackend], Fault]] = {
    **_plain("egress_set"),
    "egress_set_ignored": lambda rng, backend: Ignored(),
    "egress_set_invalid": lambda rng, backend: Refuse(InvalidRequest("There is no such rule.")),
}
_LOOK: Mapping[str, Callable[[random.Random, FakeBackend], Fault]] = {
    "probe_refused": lambda rng, backend: Refuse(),
    "probe_unanswered": lambda rng, backend: LoseAnswer(rng.choice((0.0, inf))),
}
CALLS: Mapping[Operation, Mapping[str, Callable[[random.Random, FakeBackend], Fault]]] = {
    Operation.CREATE: _CREATE,
    Operation.GET: _GET,
    Operation.LIST: {"list_refused": lambda rng, backend: Refuse()},
    Operation.DELETE: _DELETE,
    Operation.EXEC: _EXEC,
    Operation.RENEW: _RENEW,
    Operation.CALL_OFF: _CALL_OFF,
    Operation.STOP: _moves("stop"),
    Operation.START: _moves("start"),
    Operation.PAUSE: _moves("pause"),
    Operation.RESUME: _moves("resume"),
    Operation.SNAPSHOT: _SNAPSHOT,
    Operation.SNAPSHOT_GET: _plain("snapshot_get"),
    Operation.SNAPSHOT_DELETE: _plain("snapshot_delete"),
    Operation.PORT_EXPOSE: _plain("port_expose"),
    Operation.PORT_REVOKE: _plain("port_revoke"),
    Operation.EGRESS_SET: _EGRESS_SET,
    Operation.HEALTH: _LOOK,
    Operation.CAPABILITIES: _LOOK,
    Operation.CAPACITY: _LOOK,
}
_RATES = {
    Operation.CREATE: (0.05, 0.2, 0.4, 0.7),
    **dict.fromkeys((Operation.STOP, Operation.START, Operation.PAUSE, Operation.RESUME), (0.0, 0.2, 0.6)),
    Operation.EGRESS_SET: (0.0, 0.2, 0.8),
    **dict.fromkeys((Operation.RENEW, Operation.CALL_OFF), (0.1, 0.3, 0.6)),
    # A probe that fails keeps a pool from being used, so that nothing else could go wrong there.
    **dict.fromkeys((Operation.HEALTH, Operation.CAPABILITIES, Operation.CAPACITY), (0.0, 0.0, 0.01, 0.05)),
}
MOMENTS = (
    "pool_down",
    "pool_unbuildable",
    "instance_vanished",
    "snapshot_lost",
    "instance_stopped",
    "instance_paused",
    "instance_error",
    "instance_woken",
    "clock_jump",
    "clock_set_back",
    "crash_of_frozen",
    "life_over",
    "call_timed_out",
)
"""Faults that the schedule brings about by itself."""
KINDS = (*SEAMS, *dict.fromkeys(name for table in CALLS.values() for name in table), *MOMENTS)


class Weather:
    """The rates of one seed. `strike` is asked at each place where a kind can hit."""

    def __init__(self, rng: random.Random, tally: Counter[str]) -> None:
        self._rng = rng
        self._tally = tally
        self.calm = False
        self._rates = {
            kind: rng.uniform(low, high) if kind == "pause" or rng.random() < 0.6 else 0.0
            for kind, (low, high) in SEAMS.items()
        }
        self._calls = {
            operation: (
                rng.choice(_RATES.get(operation, (0.0, 0.02, 0.1, 0.3))),
                rng.sample(sorted(table), rng.randint(1, len(table))),
            )
            for operation, table in CALLS.items()
        }

    def strike(self, *kinds: str) -> str | None:
        """The kind that hits here, of those that could; at most one."""
        if self.calm:
            return None
        drawn = self._rng.random()
        for kind in kinds:
            rate = self._rates[kind]
            if drawn < rate:
                self._tally[f"fault {kind}"] += 1
                return kind
            drawn -= rate
        return None

    def plan(self, backend: FakeBackend, call: Call) -> Fault | None:
        """What befalls a call at a backend."""
        if self.calm or call.operation not in self._calls:
            return None
        rate, kinds = self._calls[call.operation]
        if self._rng.random() >= rate:
            return None
        kind = self._rng.choice(kinds)
        self._tally[f"fault {kind}"] += 1
        return CALLS[call.operation][kind](self._rng, backend)

    def note(self, moment: str) -> None:
        self._tally[f"fault {moment}"] += 1


def outage() -> ProviderUnavailable:
    """An answer that did not come in time."""
    return ProviderUnavailable("The backend did not answer in time.")
