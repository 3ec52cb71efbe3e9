"""A stand-in as the conformance suite sees it: its requests counted, its answers lost, its list broken.

Each provider's test says by which routes its operations travel, and what else can befall it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from threading import Event
from typing import ClassVar, Protocol

from differently_adapters.testing import CannotHappen, Mishap
from differently_core.contract import Operation

from .faults import Act, Fault, Go, drop_after, lose_completion
from .http import Reply, Request

Route = tuple[str, str]
ALWAYS = 1_000_000


class StandIn(Protocol):
    faults: list[Fault]
    requests: list[Request]
    up: bool

    def count(self) -> int: ...


class UnderTest:
    """`routes` give method and path of each operation's effect; `listing` those of a list's pages."""

    routes: ClassVar[Mapping[Operation, Route]]
    listing: ClassVar[Route]

    def __init__(self, fake: StandIn) -> None:
        self._fake = fake
        self._late: list[Callable[[], object]] = []

    def expect(self, route: Route, act: Act, times: int = 1) -> Fault:
        fault = Fault(*route, act, times)
        self._fake.faults.append(fault)
        return fault

    def count(self) -> int:
        return self._fake.count()

    def requests(self, operation: Operation) -> int:
        method, path = self.routes[operation]
        return sum(asked.method == method and bool(re.search(path, asked.path)) for asked in list(self._fake.requests))

    def lose_answer(self, operation: Operation) -> None:
        self.expect(self.routes[operation], drop_after)

    def delay_create(self) -> None:
        self.expect(self.routes[Operation.CREATE], self.held)

    def held(self, go: Go, request: Request, closing: Event) -> Reply:
        """It is done by `settle`, and its answer never comes."""
        self._late.append(go)
        return Reply(dropped=True)

    def settle(self) -> None:
        while self._late:
            self._late.pop()()
        self._fake.faults.clear()

    def unheard(self, go: Go, request: Request, closing: Event) -> Reply:
        """A command runs to its end, and that is lost on its way."""
        return lose_completion(go, request, closing)

    @contextlib.contextmanager
    def losing_completions(self) -> Iterator[None]:
        fault = self.expect(self.routes[Operation.EXEC], self.unheard, ALWAYS)
        yield
        fault.times = 0

    def go_down(self) -> None:
        self._fake.up = False

    def come_up(self) -> None:
        self._fake.up = True

    def arrange(self, mishap: Mishap) -> None:
        raise CannotHappen("nothing between the adapter and the service can bring it about")
