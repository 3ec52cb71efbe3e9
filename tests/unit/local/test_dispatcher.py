"""Messages reach the entry points on a bounded number of threads, waiting ones once, and nothing ends the loops."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from differently_core.model.sandbox import Status
from differently_local import dispatcher
from differently_local.dispatcher import Dispatcher, Lane, Pulse
from tests.support.world import World

SECONDS_MAX = 10.0


def until(look: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not look():
        assert time.monotonic() < end
        time.sleep(0.002)


class Work:
    """Each piece of work waits until the test lets it go."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.at_once = 0
        self.most_at_once = 0
        self.go = threading.Semaphore(0)
        self._lock = threading.Lock()

    def __call__(self, event: Mapping[str, Any]) -> None:
        with self._lock:
            self.begun.append(event["name"])
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        assert self.go.acquire(timeout=SECONDS_MAX)
        with self._lock:
            self.at_once -= 1

    def let_go(self, count: int) -> None:
        for _ in range(count):
            self.go.release()


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def lane(work: Work) -> Iterator[Lane]:
    made = Lane("test", 2, work)
    made.start()
    yield made
    made.halt()
    work.let_go(1_000)
    assert made.ended(time.monotonic() + SECONDS_MAX)


def put(lane: Lane, *names: str) -> None:
    for name in names:
        lane.put(name, {"name": name})


def test_no_more_work_at_once_than_threads(lane: Lane, work: Work) -> None:
    put(lane, *"abcdef")
    work.let_go(6)
    until(lambda: work.begun == list("abcdef") and work.at_once == 0)
    assert work.most_at_once <= 2


def test_a_message_that_waits_is_not_queued_twice_but_one_that_runs_may_be(lane: Lane, work: Work) -> None:
    put(lane, "a", "b")
    until(lambda: len(work.begun) == 2)
    put(lane, "a", "a", "c", "a", "c")
    work.let_go(4)
    until(lambda: work.begun == ["a", "b", "a", "c"] and work.at_once == 0)


def test_a_halted_lane_begins_nothing_and_waits_for_what_runs(lane: Lane, work: Work) -> None:
    put(lane, "a", "b", "c")
    until(lambda: len(work.begun) == 2)
    lane.halt()
    put(lane, "d")
    assert not lane.ended(time.monotonic() + 0.05)
    work.let_go(2)
    assert lane.ended(time.monotonic() + SECONDS_MAX)
    assert work.begun == ["a", "b"]


def test_more_than_can_wait_is_dropped(lane: Lane, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    put(lane, "a", "b")
    until(lambda: len(work.begun) == 2)
    monkeypatch.setattr(dispatcher, "WAITING_MAX", 1)
    put(lane, "c", "d")
    work.let_go(3)
    until(lambda: work.begun == ["a", "b", "c"] and work.at_once == 0)


def test_a_pulse_beats_until_it_is_halted() -> None:
    beats: list[int] = []

    def beat() -> float:
        beats.append(1)
        return 0.0

    pulse = Pulse("test", beat)
    pulse.start()
    until(lambda: len(beats) > 3)
    pulse.halt()
    assert pulse.ended(time.monotonic() + SECONDS_MAX)


def test_an_entry_point_that_fails_ends_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    def fails(core: object, event: Mapping[str, Any]) -> object:
        raise ValueError("a bug")

    assert dispatcher.attempt(fails, World().core, {}) is None
    assert "entry point failed" in caplog.text


def test_a_sandbox_goes_through_its_life_by_messages_alone() -> None:
    world = World()
    world.add_pool()
    made = Dispatcher()
    object.__setattr__(world.core, "nudges", made)
    made.start(world.core)
    try:
        sandbox = world.create()
        until(lambda: world.status(sandbox) is Status.RUNNING)
        world.delete(sandbox)
        until(lambda: world.status(sandbox) is Status.TERMINATED)
    finally:
        assert made.stop(SECONDS_MAX)


def test_what_waited_before_the_start_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "SWEEP_SECONDS", 0.01)
    world = World()
    world.add_pool(concurrency=1)
    first, second = world.create(), world.create()
    world.lose_messages()
    world.clock.advance(5)
    made = Dispatcher()
    object.__setattr__(world.core, "nudges", made)
    made.start(world.core)
    try:
        until(lambda: world.status(first) is Status.RUNNING)
        world.delete(first)
        until(lambda: world.status(second) is Status.RUNNING)
    finally:
        assert made.stop(SECONDS_MAX)
