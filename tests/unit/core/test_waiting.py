"""A blocking call is waited for without silence, and its result or error arrives whole."""

from __future__ import annotations

import threading

import pytest

from differently_core.runtime.waiting import Beat, beating


def test_a_result_that_is_there_at_once_comes_alone() -> None:
    assert list(beating(lambda: 7, 60)) == [7]


def test_a_beat_comes_while_the_call_runs() -> None:
    release = threading.Event()
    news = beating(lambda: release.wait() and "done", 0.001)
    assert isinstance(next(news), Beat)
    assert isinstance(next(news), Beat)
    release.set()
    assert [found for found in news if not isinstance(found, Beat)] == ["done"]


def test_an_error_is_raised_where_it_is_waited_for() -> None:
    def broken() -> None:
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        list(beating(broken, 60))


def test_the_call_goes_on_when_nobody_waits_any_more() -> None:
    release, ended = threading.Event(), threading.Event()

    def slow() -> None:
        release.wait()
        ended.set()

    news = beating(slow, 0.001)
    next(news)
    news.close()  # type: ignore[attr-defined]
    release.set()
    assert ended.wait(10)
