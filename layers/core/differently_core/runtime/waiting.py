"""Waiting for a call that blocks, without going silent meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Beat:
    """Nothing has happened yet."""


BEAT = Beat()


def beating(call: Callable[[], T], seconds: float) -> Iterator[Beat | T]:
    """Run `call` in a thread of its own; yield `BEAT` every `seconds` until it ends, then its result or its error.

    A caller that stops early leaves the call to end by itself: it cannot be taken back.
    """
    outcome: _Outcome[T] = _Outcome(call)
    threading.Thread(target=outcome.run, name="beating", daemon=True).start()
    while not outcome.ended.wait(seconds):
        yield BEAT
    if outcome.error is not None:
        raise outcome.error
    yield outcome.results[0]


class _Outcome(Generic[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self.ended = threading.Event()
        self.results: list[T] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.results.append(self._call())
        except BaseException as error:
            self.error = error
        finally:
            self.ended.set()
