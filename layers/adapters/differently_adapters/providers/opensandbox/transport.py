"""HTTP as this adapter speaks it: one pooled client, bounded answers, and errors that tell no secret.

Nothing is retried and no redirect is followed: what a call did is for its caller to find out, and a credential goes to
nobody that the operator did not name.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import httpx
from pydantic import JsonValue

from differently_core.errors import ProviderUnavailable
from differently_core.runtime.clock import Clock

ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
CONNECT_SECONDS: Final = 10.0
CONNECTIONS_MAX: Final = 64
IDLE_SECONDS: Final = 20.0
"""How long an unused connection is kept: shorter than the servers' own limits, which close without a word."""
HIDDEN: Final = "***"
SECRET_CHARACTERS_MIN: Final = 4
_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


@cache
def _tls() -> ssl.SSLContext:
    """Reading the authorities takes longer than most calls; one context serves every pool of a process."""
    return httpx.create_ssl_context(trust_env=False)


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes = field(repr=False)
    headers: httpx.Headers = field(repr=False)


@dataclass(frozen=True)
class Call:
    """One request. `seconds` bounds all of it; `idle_seconds` the wait for the next bytes of an answer."""

    method: str
    url: str
    seconds: float
    idle_seconds: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    params: Mapping[str, str | int] = field(default_factory=dict)
    json: JsonValue = field(default=None, repr=False)
    content: Iterable[bytes] | None = field(default=None, repr=False)


class Transport:
    """`secrets` are values that no message may repeat."""

    def __init__(self, clock: Clock, secrets: Iterable[str] = ()) -> None:
        self._clock = clock
        self._secrets = tuple(sorted({secret for secret in secrets if secret}, key=len, reverse=True))
        self._client: httpx.Client | None = None
        self._lock = threading.Lock()

    def send(self, call: Call, *, bytes_max: int = ANSWER_BYTES_MAX) -> Answer:
        """The whole answer, whatever its status. Raises `ProviderUnavailable` when none came."""
        ends = self._clock.monotonic() + call.seconds
        body = bytearray()
        with self.open(call) as response:
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > bytes_max:
                    raise ProviderUnavailable(f"The backend's answer is longer than {bytes_max} bytes.")
                if self._clock.monotonic() > ends:
                    raise ProviderUnavailable(f"The backend's answer was not whole after {call.seconds:.0f} s.")
            return Answer(response.status_code, bytes(body), response.headers)

    @contextmanager
    def open(self, call: Call) -> Iterator[httpx.Response]:
        """The answer as it comes; its status is the caller's to judge, except that of a redirect."""
        timeout = httpx.Timeout(
            call.idle_seconds or call.seconds, connect=min(CONNECT_SECONDS, call.seconds), pool=call.seconds
        )
        request: dict[str, object] = {"headers": call.headers, "params": call.params or None, "timeout": timeout}
        if call.json is not None:
            request["json"] = call.json
        if call.content is not None:
            request["content"] = call.content
        try:
            with self._open_client().stream(call.method, call.url, **request) as response:  # type: ignore[arg-type]
                if response.is_redirect:
                    raise ProviderUnavailable(
                        f"The backend answered with a redirect ({response.status_code}), which is not followed.",
                        settled=True, status=response.status_code,
                    )  # fmt: skip
                yield response
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            # The text of these errors may quote addresses that carry tokens; their kind is enough.
            settled = isinstance(error, (*_NEVER_SENT, httpx.InvalidURL))
            lost = ProviderUnavailable(f"The backend could not be reached ({type(error).__name__}).", settled=settled)
        else:
            return
        raise lost from None

    def redact(self, text: str, more: Iterable[str] = ()) -> str:
        """`text` without any secret; nothing of it when a secret is too short to be cut out."""
        for secret in (*self._secrets, *sorted(more, key=len, reverse=True)):
            if secret and secret in text:
                if len(secret) < SECRET_CHARACTERS_MIN:
                    return ""
                text = text.replace(secret, HIDDEN)
        return text

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _open_client(self) -> httpx.Client:
        with self._lock:
            if self._client is None:
                self._client = httpx.Client(
                    follow_redirects=False,
                    # A proxy or a netrc of the host's environment must not see or change our credentials.
                    trust_env=False,
                    verify=_tls(),
                    limits=httpx.Limits(
                        max_connections=CONNECTIONS_MAX, max_keepalive_connections=16, keepalive_expiry=IDLE_SECONDS
                    ),
                )
            return self._client
