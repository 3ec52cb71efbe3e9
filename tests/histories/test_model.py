"""The checker explains what can have been, and nothing else."""

from __future__ import annotations

from math import inf

import pytest

from .model import Call, Kind, Told, Unexplained, explain


def made(began: float, ended: float, sandbox: str = "a", body: str = "x") -> Call:
    return Call(0, Kind.CREATE, Told.MADE, began, ended, sandbox, body)


def replayed(began: float, ended: float, sandbox: str = "a", body: str = "x") -> Call:
    return Call(1, Kind.CREATE, Told.REPLAYED, began, ended, sandbox, body)


def lost(began: float, body: str = "x") -> Call:
    return Call(2, Kind.CREATE, Told.UNKNOWN, began, inf, "", body)


def wrote(began: float, ended: float, label: str, sandbox: str = "a") -> Call:
    told = Told.DONE if ended < inf else Told.UNKNOWN
    return Call(3, Kind.UPDATE, told, began, ended, sandbox, label=label)


def saw(began: float, ended: float, label: str | None, sandbox: str = "a") -> Call:
    return Call(4, Kind.GET, Told.LIVE, began, ended, sandbox, label=label)


def saw_gone(began: float, ended: float, sandbox: str = "a") -> Call:
    return Call(4, Kind.GET, Told.GONE, began, ended, sandbox)


def deleted(began: float, ended: float, sandbox: str = "a") -> Call:
    return Call(5, Kind.DELETE, Told.DONE if ended < inf else Told.UNKNOWN, began, ended, sandbox)


POSSIBLE = {
    "in turn": [made(0, 1), wrote(2, 3, "p"), saw(4, 5, "p"), deleted(6, 7), saw_gone(8, 9), made(10, 11, "b")],
    "two writes at once": [made(0, 1), wrote(2, 9, "p"), wrote(3, 8, "q"), saw(4, 5, "q"), saw(6, 7, "p")],
    "a lost create that made it": [lost(0), replayed(2, 3), saw(4, 5, None)],
    "a lost create that did not": [lost(0), made(2, 3)],
    "a lost create that came late": [made(0, 1), lost(2), deleted(3, 4), replayed(5, 6, "b")],
    "a lost write that is seen later": [made(0, 1), wrote(2, inf, "p"), saw(3, 4, None), saw(5, 6, "p")],
    "a lost write that never was": [made(0, 1), wrote(2, inf, "p"), saw(3, 4, None), saw(5, 6, None)],
    "a lost delete": [made(0, 1), deleted(2, inf), saw(3, 4, None), saw_gone(5, 6), made(7, 8, "b")],
    "a read that ends late": [made(0, 1), saw(2, 9, None), wrote(3, 4, "p")],
    "a delete again": [made(0, 1), deleted(2, 3), made(4, 5, "b"), deleted(6, 7), saw(8, 9, None, "b")],
}
IMPOSSIBLE = {
    "two of one key": [made(0, 1), made(2, 3, "b")],
    "a read from before the last write": [made(0, 1), wrote(2, 3, "p"), wrote(4, 5, "q"), saw(6, 7, "p")],
    "a write that was lost though it was answered": [made(0, 1), wrote(2, 3, "p"), saw(4, 5, None)],
    "seen, and then not": [made(0, 1), wrote(2, inf, "p"), saw(3, 4, "p"), saw(5, 6, None)],
    "back to life": [made(0, 1), deleted(2, 3), saw(4, 5, None)],
    "gone before anybody asked": [made(0, 1), saw_gone(2, 3), deleted(4, 5)],
    "a replay with another body": [made(0, 1), replayed(2, 3, body="y")],
    "a replay of one that is gone": [made(0, 1), deleted(2, 3), replayed(4, 5)],
    "a write to one that is gone": [made(0, 1), deleted(2, 3), wrote(4, 5, "p")],
    "lost, and made twice": [lost(0), replayed(2, 3), replayed(4, 5, "b")],
}


@pytest.mark.parametrize("history", POSSIBLE.values(), ids=list(POSSIBLE))
def test_what_can_have_been_is_explained(history: list[Call]) -> None:
    order = explain(history)
    assert [call for call in order if call.told is not Told.UNKNOWN] != []


@pytest.mark.parametrize("history", IMPOSSIBLE.values(), ids=list(IMPOSSIBLE))
def test_what_cannot_have_been_is_not(history: list[Call]) -> None:
    with pytest.raises(Unexplained, match="none of"):
        explain(history)
