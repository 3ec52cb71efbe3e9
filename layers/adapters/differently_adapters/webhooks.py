"""Requests to receivers of webhooks: to public addresses over https, once, and nothing of the answer but its status.

It goes through the guard of the pools' client: every address of the host is looked at when a connection is made, and
that address is connected to. URLs are given by tenants, so none of a pool's exceptions is ever made for them.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from differently_core.errors import InvalidRequest
from differently_core.model.webhook import Failure, Receipt
from differently_core.runtime.clock import Clock

from .http import AddressRefused, EndpointRules, SharedClient, Target, parse_target, retry_after

if TYPE_CHECKING:
    import httpx

    from .http.connections import Countdown, Resolve

CONNECT_SECONDS: Final = 5.0
DRAINED_BYTES_MAX: Final = 16_384
"""Read and thrown away of an answer, so that its connection can be used again; a longer one is cut off."""
DRAIN_SECONDS: Final = 1.0
AGENT: Final = "differently-webhooks/1"


class HttpCourier:
    """The `Courier` of every process that sends webhooks. Loads httpx with the first request."""

    def __init__(
        self, clock: Clock, *, loopback: bool = False, resolve: Resolve | None = None, authorities: str | None = None
    ) -> None:
        """`loopback` lets receivers be on this very machine, over plain http too: for development alone."""
        self._clock = clock
        self._rules = EndpointRules(http=loopback, loopback=loopback)
        self._shared = SharedClient(clock, self._rules, authorities, None, resolve)

    def check(self, url: str) -> None:
        parse_target(url, self._rules)

    def post(self, url: str, headers: Mapping[str, str], body: bytes, seconds: float) -> Receipt:
        try:
            target = parse_target(url, self._rules)
        except InvalidRequest:  # it was taken under other rules
            return Receipt(failure=Failure.ADDRESS)
        client, countdown = self._shared.client()
        end = self._clock.monotonic() + seconds
        try:
            with countdown.until(end):
                response = client.send(_request(target, headers, body, seconds), stream=True)
        except AddressRefused:
            return Receipt(failure=Failure.ADDRESS)
        except Exception as error:
            return Receipt(failure=failure_of(error))
        try:
            return Receipt(
                status=response.status_code, retry_after_seconds=retry_after(response.headers, self._clock.now())
            )
        finally:
            _drain(response, countdown, min(end, self._clock.monotonic() + DRAIN_SECONDS))

    def close(self) -> None:
        self._shared.close()


def _request(target: Target, headers: Mapping[str, str], body: bytes, seconds: float) -> httpx.Request:
    import httpx

    connect = min(CONNECT_SECONDS, seconds)
    return httpx.Request(
        "POST", target.url, headers={"user-agent": AGENT, "accept": "*/*", "accept-encoding": "identity", **headers},
        content=body,
        extensions={"timeout": {"connect": connect, "read": seconds, "write": seconds, "pool": connect}},
    )  # fmt: skip


def _drain(response: httpx.Response, countdown: Countdown, end: float) -> None:
    """The status is all that counts, so whatever happens here is no failure."""
    try:
        with countdown.until(end):
            size = 0
            for chunk in response.iter_raw():
                size += len(chunk)
                if size > DRAINED_BYTES_MAX:
                    break
    except Exception:
        pass
    finally:
        response.close()


_FAILURES: Final[Mapping[str, Failure]] = {
    "ConnectError": Failure.UNREACHABLE,
    "ConnectTimeout": Failure.TIMEOUT,
    "ReadTimeout": Failure.TIMEOUT,
    "WriteTimeout": Failure.TIMEOUT,
    "PoolTimeout": Failure.TIMEOUT,
}
"""Exceptions of httpx by their name, so that reading this does not load httpx."""


def failure_of(error: BaseException) -> Failure:
    """What became of a request that has no answer."""
    if any(isinstance(cause, ssl.SSLError) for cause in _causes(error)):
        return Failure.TLS
    return _FAILURES.get(type(error).__name__, Failure.BROKEN)


def _causes(error: BaseException) -> Iterator[BaseException]:
    at: BaseException | None = error
    while at is not None:
        yield at
        at = at.__cause__ or at.__context__
