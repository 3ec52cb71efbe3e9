"""Many threads at once: the store gives out exactly what there is."""

from __future__ import annotations

import threading
from collections.abc import Callable

from differently_core.model.quota import Counter
from differently_core.model.sandbox import Sandbox
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Absent, AtLeast, Committed, Equals, Outcome, Put, Refused, Store, Update
from tests.conformance.store.samples import Samples, committed, keep

THREADS = 20
WAIT_SECONDS_MAX = 60


def at_once(work: Callable[[int], object], threads: int = THREADS) -> list[object]:
    """The results of running `work` in that many threads that start together."""
    results: list[object] = [None] * threads
    start = threading.Barrier(threads, timeout=WAIT_SECONDS_MAX)

    def run(number: int) -> None:
        start.wait()
        results[number] = work(number)

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(WAIT_SECONDS_MAX)
    return results


def take(some: Samples, name: str) -> Update:
    return Update(
        Counter, some.counter_key(name), name, add={"free_sandboxes": -1}, when=(AtLeast("free_sandboxes", 1),)
    )


def until_no_conflict(store: Store, *actions: Put | Update) -> Outcome:
    outcome = store.transact(actions)
    while isinstance(outcome, Refused) and not outcome.failed:
        outcome = store.transact(actions)
    return outcome


def test_twenty_threads_and_seven_tokens_make_seven_sandboxes(store: Store, some: Samples) -> None:
    keep(store, some.counter("org"), some.counter("pool", free=12))

    def create(n: int) -> Outcome:
        return until_no_conflict(
            store, take(some, "org"), take(some, "pool"), Put(some.sandbox(n), (Absent(),), "sandbox")
        )

    outcomes = at_once(create)

    assert sum(outcome == Committed() for outcome in outcomes) == 7
    made = store.batch_get([(Sandbox, some.key(n)) for n in range(THREADS)])
    assert [sandbox is not None for sandbox in made] == [outcome == Committed() for outcome in outcomes]
    left = store.batch_get([(Counter, some.counter_key(name)) for name in ("org", "pool")])
    assert left == [
        some.counter("org", free=0, limit_sandboxes=7), some.counter("pool", free=5, limit_sandboxes=12),
    ]  # fmt: skip


def test_twenty_plain_updates_lose_nothing(store: Store, some: Samples) -> None:
    keep(store, some.counter(free=100))
    give = Update(Counter, some.counter_key(), "give", add={"free_sandboxes": 1})

    assert at_once(lambda _: store.transact([give])) == [Committed()] * THREADS

    assert store.get(Counter, some.counter_key()) == some.counter(free=120, limit_sandboxes=100)


def test_of_twenty_first_puts_one_wins_and_the_others_see_it(store: Store, some: Samples) -> None:
    outcomes = at_once(lambda n: store.transact([Put(some.idempotency(digest=f"d{n}"), (Absent(),), "key")]))

    winner = store.get(type(some.idempotency()), some.idempotency().key())
    assert sum(outcome == Committed() for outcome in outcomes) == 1
    for n, outcome in enumerate(outcomes):
        if outcome == Committed():
            assert winner == some.idempotency(digest=f"d{n}")
        else:
            assert outcome == Refused({"key": winner})


def test_versioned_writes_of_twenty_threads_are_all_there_in_the_end(store: Store, some: Samples) -> None:
    keep(store, some.sandbox(failures=0))

    def fail_once(_: int) -> int:
        tries = 0
        while True:
            tries += 1
            found = store.get(Sandbox, some.key())
            assert found is not None
            change = found.with_(version=found.version + 1, failures=found.failures + 1)
            if store.transact([Put(change, (Equals("version", found.version),), "sandbox")]) == Committed():
                return tries

    at_once(fail_once)

    assert store.get(Sandbox, some.key()) == some.sandbox(version=THREADS + 1, failures=THREADS)


def test_a_store_in_memory_in_which_transactions_overlap_gives_out_exactly_seven(some: Samples) -> None:
    """Each transaction waits in its middle until another one has been judged, or all others are done."""
    judged = threading.Semaphore(0)

    def during(actions: object) -> None:
        judged.release()
        judged.acquire(timeout=WAIT_SECONDS_MAX)

    store = MemoryStore(during=during)
    keep(store, some.counter("org"))
    conflicts: list[str] = []

    def create(n: int) -> Outcome:
        while True:
            outcome = store.transact([take(some, "org"), Put(some.sandbox(n), (Absent(),), "sandbox")])
            if not isinstance(outcome, Refused) or outcome.failed:
                return outcome
            conflicts.extend(outcome.conflicts)

    outcomes = at_once(create)

    assert sum(outcome == Committed() for outcome in outcomes) == 7
    assert set(conflicts) <= {"org"}
    assert len(store.query_list(f"LIVE#{some.project}").rows) == 7
    committed(store.transact([Update(Counter, some.counter_key("org"), "org", add={"free_sandboxes": 1})]))
