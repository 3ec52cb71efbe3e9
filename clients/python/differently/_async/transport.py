"""Requests over httpx: sent, sent again where that is safe, and read. What is decided here is decided elsewhere."""

from __future__ import annotations

import logging
import platform
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from .._answer import document, failure
from .._failure import ConnectionFailed, DifferentlyError
from .._request import Request
from .._retry import wait_before_repeat
from .._settings import Settings
from .._version import VERSION
from .waiting import pause

log = logging.getLogger("differently")
CONNECT_SECONDS = 10.0
CONNECTIONS_MAX = 100
UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


@dataclass(frozen=True)
class AsyncAnswer:
    """The head of a good answer; its body comes as it is read."""

    status: int
    headers: httpx.Headers
    chunks: AsyncIterator[bytes]


class AsyncTransport:
    """One server and one key."""

    def __init__(
        self, settings: Settings, transport: httpx.AsyncBaseTransport | None = None,
        pause: Callable[[float], Awaitable[None]] = pause,
    ) -> None:  # fmt: skip
        self.settings = settings
        self._pause = pause
        self._given = transport
        self._http = httpx.AsyncClient(
            headers={
                "Authorization": f"Bearer {settings.api_key}",
                "User-Agent": f"differently-sandbox/{VERSION} python/{platform.python_version()}",
            },
            follow_redirects=False,
            # Without TLS no authorities are needed, and reading them takes longer than most calls: none is trusted.
            verify=True if settings.url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            # A proxy that the shell names must not see what is meant for this machine.
            trust_env=not settings.is_loopback,
            limits=httpx.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX),
            transport=transport,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def document(self, request: Request) -> Any:
        """The JSON of the answer; None when it has no body."""
        attempts = 0
        while True:
            attempts += 1
            try:
                async with self._opened(request) as answer:
                    body = b"".join([chunk async for chunk in answer.chunks])
                return document(answer.status, body)
            except DifferentlyError as failed:
                await self._wait_or_raise(request, attempts, failed)

    @asynccontextmanager
    async def opened(self, request: Request) -> AsyncIterator[AsyncAnswer]:
        """A streamed answer. What fails before its head came may be sent again; what breaks later is raised."""
        attempts = 0
        while True:
            attempts += 1
            opening = self._opened(request)
            try:
                answer = await opening.__aenter__()
                break
            except DifferentlyError as failed:
                await self._wait_or_raise(request, attempts, failed)
        try:
            yield answer
        except BaseException as raised:
            await opening.__aexit__(type(raised), raised, raised.__traceback__)
            raise
        await opening.__aexit__(None, None, None)

    async def _wait_or_raise(self, request: Request, attempts: int, failed: DifferentlyError) -> None:
        wait = wait_before_repeat(request, attempts, failed, random.random())
        if wait is None:
            raise failed
        log.debug("again in %.1f s: %s %s: %s", wait, request.method, request.path, failed)
        await self._pause(wait)

    @asynccontextmanager
    async def _opened(self, request: Request) -> AsyncIterator[AsyncAnswer]:
        """One try."""
        began = time.monotonic()
        timeout = httpx.Timeout(request.silence_seconds, connect=CONNECT_SECONDS, pool=CONNECT_SECONDS)
        made = self._http.build_request(
            request.method, self.settings.url + request.path, params=list(request.query) or None,
            content=request.body, headers=dict(request.headers), timeout=timeout,
        )  # fmt: skip
        try:
            response = await self._http.send(made, stream=True)
            try:
                log.debug("%s %s -> %d", request.method, request.path, response.status_code)
                if not 200 <= response.status_code < 300:
                    raise failure(response.status_code, response.headers, await response.aread())
                yield AsyncAnswer(response.status_code, response.headers, response.aiter_bytes())
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise self._lost(request, error, time.monotonic() - began) from None

    def _lost(self, request: Request, error: httpx.HTTPError, seconds: float) -> ConnectionFailed:
        """httpx's own exceptions hold the request with its headers, so none of them is passed on."""
        if isinstance(error, UNSENT):
            why = str(error) or "no connection"
            return ConnectionFailed(f"{self.settings.url} cannot be reached: {why}.", sent=False)
        what = f"{request.method} {request.path}"
        if isinstance(error, httpx.TimeoutException):
            return ConnectionFailed(f"No answer to {what} within {seconds:.0f} s.", sent=True)
        return ConnectionFailed(f"The connection broke off during {what} ({type(error).__name__}).", sent=True)
