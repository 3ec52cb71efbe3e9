"""Connections under one pool's HTTP client: whom they may reach, and that no call outlives its deadline.

httpx bounds each read, not a whole answer, and connects to whatever a name leads to. Both are mended below it, where
its own library offers the place: a network backend that checks addresses and counts every wait against the call's end.
Loaded on first use only, because httpx takes a tenth of a second to import.
"""

from __future__ import annotations

import http.cookiejar
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from ipaddress import ip_address
from typing import Any, Final

import httpcore
import httpx

from differently_core.runtime.clock import Clock
from differently_core.runtime.waiting import Beat, beating

from .endpoints import EndpointRules, check_addresses

CONNECTIONS_MAX: Final = 64
IDLE_SECONDS: Final = 30.0
"""An idle connection is not used again after that. Clouds drop them silently after minutes, and a frozen function's
monotonic clock may have stood still meanwhile: so this is measured on the wall clock."""

Resolve = Callable[[str, int], list[str]]
Transport = Callable[[], httpx.BaseTransport]


def system_resolve(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Countdown:
    """When the call that is under way on this thread must have ended."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._local = threading.local()

    @contextmanager
    def until(self, end: float) -> Iterator[None]:
        before = getattr(self._local, "end", None)
        self._local.end = end
        try:
            yield
        finally:
            self._local.end = before

    def left(self, timeout: float | None) -> float | None:
        """What may be waited now; zero or less when the time is up."""
        end: float | None = getattr(self._local, "end", None)
        if end is None:
            return timeout
        left = end - self._clock.monotonic()
        return left if timeout is None else min(left, timeout)


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, countdown: Countdown, clock: Clock) -> None:
        self._inner = inner
        self._countdown = countdown
        self._clock = clock
        self._used = clock.now()

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        left = self._countdown.left(timeout)
        if left is not None and left <= 0:
            raise httpcore.ReadTimeout
        data = self._inner.read(max_bytes, left)
        self._used = self._clock.now()
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        left = self._countdown.left(timeout)
        if left is not None and left <= 0:
            raise httpcore.WriteTimeout
        self._inner.write(buffer, left)
        self._used = self._clock.now()

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = self._countdown.left(timeout)
        if left is not None and left <= 0:
            raise httpcore.ConnectTimeout
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, left), self._countdown, self._clock)

    def get_extra_info(self, info: str) -> Any:
        # An idle connection that has something to read was closed by the other side; one too old is treated alike.
        if info == "is_readable" and self._clock.now() - self._used > timedelta(seconds=IDLE_SECONDS):
            return True
        return self._inner.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, rules: EndpointRules, countdown: Countdown, clock: Clock, resolve: Resolve) -> None:
        self._rules = rules
        self._countdown = countdown
        self._clock = clock
        self._resolve = resolve
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        end = None if timeout is None else self._clock.monotonic() + timeout
        failure: Exception = httpcore.ConnectError("The host has no address.")
        for address in check_addresses(self._addresses(host, port, timeout), self._rules):
            left = self._countdown.left(None if end is None else end - self._clock.monotonic())
            if left is not None and left <= 0:
                raise httpcore.ConnectTimeout
            try:
                stream = self._inner.connect_tcp(address, port, left, local_address, socket_options or ())
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                return _Stream(stream, self._countdown, self._clock)
        raise failure

    def _addresses(self, host: str, port: int, timeout: float | None) -> list[str]:
        """The host's addresses. The system's resolver knows no deadline, so it is waited for beside it."""
        with suppress(ValueError):
            return [str(ip_address(host.strip("[]")))]
        left = self._countdown.left(timeout)
        try:
            for found in beating(lambda: self._resolve(host, port), 60.0 if left is None else left):
                if isinstance(found, Beat):
                    raise httpcore.ConnectTimeout
                return found
        except (OSError, UnicodeError):  # the second for a name that cannot be written as one
            pass
        raise httpcore.ConnectError("The host's name could not be resolved.")


class _Body(httpx.SyncByteStream):
    def __init__(self, inner: Iterable[bytes]) -> None:
        self._inner = inner

    def __iter__(self) -> Iterator[bytes]:
        with _as_httpx():
            yield from self._inner

    def close(self) -> None:
        close = getattr(self._inner, "close", None)
        if close is not None:
            close()


@contextmanager
def _as_httpx() -> Iterator[None]:
    """The lower library's exceptions under the names that httpx has for them; they are the same names."""
    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError,
            httpcore.ProxyError, httpcore.UnsupportedProtocol) as error:  # fmt: skip
        raise getattr(httpx, type(error).__name__)(str(error)) from error


class GuardedTransport(httpx.BaseTransport):
    """httpx's own transport has no place for a network backend; this one has, and is otherwise the same."""

    def __init__(
        self, rules: EndpointRules, countdown: Countdown, clock: Clock, context: ssl.SSLContext, resolve: Resolve
    ) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=context,
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=CONNECTIONS_MAX,
            keepalive_expiry=IDLE_SECONDS,
            retries=0,
            network_backend=_Backend(rules, countdown, clock, resolve),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.SyncByteStream)
        url = request.url
        asked = httpcore.Request(
            method=request.method,
            url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _as_httpx():
            answer = self._pool.handle_request(asked)
        assert isinstance(answer.stream, Iterable)
        return httpx.Response(
            answer.status, headers=answer.headers, stream=_Body(answer.stream), extensions=answer.extensions
        )

    def close(self) -> None:
        self._pool.close()


@cache
def system_trust() -> ssl.SSLContext:
    """One for the process: making it reads every certificate authority and takes tens of milliseconds."""
    return httpx.create_ssl_context()


def trust_in(authorities: str | None) -> ssl.SSLContext:
    """What a server's certificate is checked against: the system's authorities, or only those given (PEM)."""
    return system_trust() if authorities is None else ssl.create_default_context(cadata=authorities)


def make_client(transport: httpx.BaseTransport) -> httpx.Client:
    """No redirects, no cookies, no proxies from the environment, and no log lines with URLs in them."""
    _hush()
    no_cookies = http.cookiejar.CookieJar(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
    client = httpx.Client(transport=transport, cookies=no_cookies, trust_env=False, follow_redirects=False)
    client.headers.clear()
    return client


_LOGGERS: Final = ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.proxy", "httpcore.http2")


@cache
def _hush() -> None:
    # They write the URL of every call, and at debug level the headers of every answer, where a key may be reflected.
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_only_warnings)


def _only_warnings(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING
