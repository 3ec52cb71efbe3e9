"""Receivers of webhooks in memory: each request is kept, and a test decides what is answered."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from differently_adapters.webhooks import HttpCourier
from differently_core.model.webhook import Receipt
from differently_core.runtime.clock import Clock

TAKEN = Receipt(status=204)


@dataclass(frozen=True)
class Request:
    url: str
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def event(self) -> Any:
        return json.loads(self.body)


class Receivers(HttpCourier):
    """URLs are checked as they are in earnest; what is sent goes to `answer`."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.requests: list[Request] = []
        self.answer: Callable[[Request], Receipt] = lambda request: TAKEN

    def post(self, url: str, headers: Mapping[str, str], body: bytes, seconds: float) -> Receipt:
        request = Request(url, headers, body)
        self.requests.append(request)
        return self.answer(request)
