"""What can befall a request on its way and back. Each is something that was seen of servers or of what lies between."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event
from typing import Any

from .http import Reply, Request, refused, told

Go = Callable[[], Reply]
Act = Callable[[Go, Request, Event], Reply]
"""Given the real call, the request, and an event that ends all waiting; returns what the client gets."""
DROPPED = Reply(dropped=True)


@dataclass
class Fault:
    """Befalls the next `times` requests of the method whose path matches."""

    method: str
    path: str
    act: Act
    times: int = 1

    def strikes(self, request: Request) -> bool:
        return self.times > 0 and request.method == self.method and re.search(self.path, request.path) is not None


def drop_after(go: Go, request: Request, closing: Event) -> Reply:
    """It takes effect and the answer never comes."""
    go()
    return DROPPED


def drop_before(go: Go, request: Request, closing: Event) -> Reply:
    return DROPPED


def answer(status: int, code: str, message: str = "", *, effect: bool = False, **headers: str) -> Act:
    def act(go: Go, request: Request, closing: Event) -> Reply:
        if effect:
            go()
        reply = refused(status, code, message)
        reply.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
        return reply

    return act


def html(status: int = 200, *, effect: bool = True) -> Act:
    def act(go: Go, request: Request, closing: Event) -> Reply:
        if effect:
            go()
        return Reply(status, b"<html><body>Bad gateway</body></html>", {"content-type": "text/html"})

    return act


def redirect(location: str) -> Act:
    return lambda go, request, closing: Reply(307, b"", {"location": location})


def slow(seconds: float, *, effect_first: bool = True) -> Act:
    def act(go: Go, request: Request, closing: Event) -> Reply:
        if effect_first:
            reply = go()
            closing.wait(seconds)
            return reply
        closing.wait(seconds)
        return go()

    return act


def cut_body(kept: int) -> Act:
    """The answer promises more than it brings."""

    def act(go: Go, request: Request, closing: Event) -> Reply:
        reply = go()
        reply.cut = kept
        return reply

    return act


def edit(change: Callable[[Any], Any]) -> Act:
    def act(go: Go, request: Request, closing: Event) -> Reply:
        reply = go()
        return told(reply.status, change(json.loads(reply.body)))

    return act


def reflect(status: int) -> Act:
    """An error that quotes the whole request, credentials and all."""

    def act(go: Go, request: Request, closing: Event) -> Reply:
        return refused(status, "INTERNAL", f"cannot handle {request.headers} {request.body.decode(errors='replace')}")

    return act


def lose_completion(go: Go, request: Request, closing: Event) -> Reply:
    """The command runs, and after its first event the connection is gone."""
    reply = go()
    whole = iter(reply.stream or ())

    def cut() -> Iterator[bytes]:
        yield next(whole)
        for _ in whole:  # the command goes on to its end all the same
            pass
        yield b""

    reply.stream = cut()
    return reply
