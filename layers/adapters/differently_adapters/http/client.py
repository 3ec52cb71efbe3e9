"""The one way in which adapters speak HTTP: bounded in time and size, never repeated, and telling no credential.

A pool has one `Http`, and an `Http` has one pooled client, made on first use. Each call says how long it may take.
Every failure comes out as an error of our own tree that says whether the call may have had an effect, with credentials
taken out by their value, and without the exception it was made from: that one holds the request with its headers.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self, TypeVar
from urllib.parse import quote, urlencode

from pydantic import JsonValue

from differently_core.errors import (
    AdapterFault,
    BackendError,
    Detail,
    DifferentlyError,
    NotFound,
    ProviderUnavailable,
)
from differently_core.runtime.clock import Clock

from .answers import JSON_BYTES_MAX, BadAnswer, check_type, parse_json, unfolded, within
from .endpoints import PUBLIC, AddressRefused, Endpoint, EndpointRules
from .failures import (
    STATUSES,
    Status,
    error_inside,
    excerpt,
    refused,
    retry_after,
    status_row,
    told_in,
    trouble,
    unanswered,
    unavailable,
)  # fmt: skip
from .lines import LINE_BYTES_MAX, LineTooLong, lines
from .redaction import Secrets

if TYPE_CHECKING:
    import httpcore
    import httpx

    from .connections import Countdown, Resolve, Transport

log = logging.getLogger(__name__)
T = TypeVar("T")

CONNECT_SECONDS: Final = 5.0
ERROR_BYTES_MAX: Final = 65_536
"""Read of a body that comes with a status of failure; enough for what it has to say."""
SECRET_CHARACTERS_MIN: Final = 4
"""A value shorter than that is in any text by chance."""
JSON: Final = "application/json"
SWITCHED: Final = 101
_PIECE: Final = 65_536
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})

Sign = Callable[["Call", str, Mapping[str, str], bytes], Mapping[str, str]]
"""Headers that prove who sends a request, from the call, its URL, its headers and its body."""
Explain = Callable[["Call", int, Mapping[str, str], JsonValue], DifferentlyError | None]
"""A provider's own reading of a failure from the call, status, headers and body (None if it was not JSON)."""


@dataclass(frozen=True)
class Deadlines:
    """Seconds. `read` bounds each wait for more of the answer; None leaves that to `total`, which bounds it all."""

    total: float
    connect: float = CONNECT_SECONDS
    read: float | None = None


@dataclass(frozen=True)
class Call:
    """One request. `path` is quoted already; see `segment`. `body` travels as JSON, `content` as it is.

    `mutates` says whether it may change something at the backend, by default what its method means. `lost` is the error
    for an outcome that is not known. `error_inside` finds a failure in an answer whose status is a success. `secrets`
    are values in the request that no error may quote, such as a sandbox's environment.
    """

    method: str
    path: str
    deadlines: Deadlines
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: JsonValue = field(default=None, repr=False)
    content: bytes | Iterable[bytes] | None = field(default=None, repr=False)
    mutates: bool | None = None
    lost: type[BackendError] = ProviderUnavailable
    answer_bytes_max: int = JSON_BYTES_MAX
    accept: str = JSON
    error_inside: Callable[[JsonValue], str | None] = error_inside
    secrets: Collection[str] = field(default=(), repr=False)

    def hide(self, text: str) -> str:
        """What a backend said, without the request's own secrets; nothing of it when one is too short to be cut out."""
        if any(0 < len(value) < SECRET_CHARACTERS_MIN and value in text for value in self.secrets):
            return ""
        return Secrets(self.secrets).redact(text) if self.secrets else text

    @property
    def changes(self) -> bool:
        return self.method not in SAFE if self.mutates is None else self.mutates


@dataclass(frozen=True)
class Answer:
    """A whole answer. Header names are in lower case; a header that came twice is joined by commas."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


def segment(value: str) -> str:
    """One segment of a path, whatever the value is; raises `NotFound` for what a path cannot hold."""
    if value in {"", ".", ".."}:
        raise NotFound("The backend cannot have anything under this name.")
    return quote(value, safe="")


class Http:
    """A pool's HTTP client. `headers` go with every request; `secrets` are the values that nothing may tell."""

    def __init__(
        self,
        endpoint: Endpoint,
        clock: Clock,
        *,
        headers: Mapping[str, str] | None = None,
        secrets: Iterable[str] = (),
        rules: EndpointRules = PUBLIC,
        statuses: Mapping[int, Status] = STATUSES,
        explain: Explain | None = None,
        sign: Sign | None = None,
        check: Callable[[Mapping[str, str]], None] | None = None,
        authorities: str | None = None,
        transport: Transport | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        """`check` looks at the headers of every answer and raises `BadAnswer`; `authorities` is PEM.

        `transport` replaces the network, which is for tests; `resolve` replaces the name server.
        """
        self.endpoint = endpoint
        self.secrets = Secrets(secrets)
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}
        self._statuses = statuses
        self._explain = explain
        self._sign = sign
        self._check = check
        self._clock = clock
        self._shared = SharedClient(clock, rules, authorities, transport, resolve)

    def at(
        self,
        endpoint: Endpoint,
        headers: Mapping[str, str],
        *,
        explain: Explain | None = None,
        secrets: Collection[str] = (),
    ) -> Http:
        """The same client for another base URL. It sends `headers` and none of the pool's own.

        `explain` reads its failures in place of the pool's own; `secrets` are told no more than the pool's.
        """
        other = object.__new__(Http)
        other.__dict__.update(self.__dict__)
        other.endpoint = endpoint
        other._headers = {name.lower(): value for name, value in headers.items()}
        other._sign = other._check = None
        other._explain = explain or self._explain
        other.secrets = self.secrets.and_also(secrets)
        return other

    def redact(self, text: str) -> str:
        return self.secrets.redact(text)

    def json(self, call: Call) -> JsonValue:
        """The answer's JSON. Whoever sent it, it holds no credential of ours."""
        with self.stream(call) as answer:
            return answer.json()

    def json_bytes(self, call: Call) -> bytes:
        """The same, not read yet: for a long list, whose reader takes it apart and checks it in one go."""
        with self.stream(call) as answer:
            return answer.json_bytes()

    def answer(self, call: Call) -> Answer:
        """The whole answer as bytes."""
        with self.stream(call) as answer:
            return Answer(answer.status, answer.headers, answer.read())

    @contextmanager
    def stream(self, call: Call) -> Iterator[Streamed]:
        """An answer with a status of success whose body is still to be read; left early, its connection is closed."""
        answer = self._send(call)
        try:
            yield answer
        finally:
            answer.close()

    @contextmanager
    def switched(self, call: Call) -> Iterator[Streamed]:
        """A connection that changed its protocol, as the call's headers asked for; closed in the end.

        Any other answer than 101 is a refusal. What is said then goes by `receive` and `send`.
        """
        answer = self._send(call, switching=True)
        try:
            yield answer
        finally:
            answer.close()

    def close(self) -> None:
        """Close the connections; calls under way fail."""
        self._shared.close()

    def _send(self, call: Call, *, switching: bool = False) -> Streamed:
        end = self._clock.monotonic() + call.deadlines.total
        upload = _Upload(call.content) if _is_streamed(call.content) else None
        failure: BaseException
        try:
            request = self._request(call, upload)
            client, countdown = self._shared.client()
            with countdown.until(end):
                response = client.send(request, stream=True)
        except (DifferentlyError, AddressRefused) as error:
            failure = self._failure(error, call)
        except Exception as error:
            failure = upload.failure if upload is not None and upload.failure else self._failure(error, call)
        else:
            return Streamed(self, call, response, countdown, end).accepted(switching=switching)
        # Raised out here, so that it carries no exception that holds the request.
        raise failure

    def _request(self, call: Call, upload: _Upload | None) -> httpx.Request:
        import httpx

        url = self._url(call)
        content = b"" if call.content is None or upload is not None else call.content
        assert isinstance(content, bytes)
        headers = {"user-agent": "differently", "accept": call.accept}
        headers["accept-encoding"] = "gzip" if call.accept == JSON else "identity"
        if call.body is not None:
            content = _as_json(call.body)
            headers["content-type"] = "application/json"
        headers |= self._headers | {name.lower(): value for name, value in call.headers.items()}
        if self._sign is not None:
            headers |= {name.lower(): value for name, value in self._sign(call, url, headers, content).items()}
        if not all(value.isascii() and value.isprintable() for value in headers.values()):
            raise ProviderUnavailable("A credential or name has characters that no header can carry.", settled=True)
        seconds = call.deadlines
        return httpx.Request(
            call.method,
            url,
            headers=headers,
            content=upload if upload is not None else content or None,
            extensions={
                "timeout": {
                    "connect": min(seconds.connect, seconds.total),
                    "read": seconds.total if seconds.read is None else seconds.read,
                    "write": seconds.total,
                    "pool": min(seconds.connect, seconds.total),
                }
            },
        )

    def _url(self, call: Call) -> str:
        if not call.path.startswith("/") or any(part in {".", ".."} for part in call.path.split("/")):
            raise AdapterFault("A path must begin with a slash and have no dot segments.", settled=True)
        query = f"?{urlencode(call.query, quote_via=quote)}" if call.query else ""
        return f"{self.endpoint.url}{call.path}{query}"

    # Failures, all of which come through here.

    def _failure(self, error: Exception, call: Call) -> DifferentlyError:
        """The error of a call that has no usable answer."""
        lost: type[BackendError] = call.lost
        match error:
            case DifferentlyError():
                return self._redacted(error)
            case AddressRefused():
                message = f"The backend's host leads to {error}, which this pool may not reach."
                return ProviderUnavailable(message, settled=True)
            case BadAnswer():
                return self._redacted(unavailable(str(error), settled=not call.changes, lost=lost))
            case LineTooLong():
                return unavailable("The backend sent a line that is too long.", settled=not call.changes, lost=lost)
            case _:
                found = trouble(error)
                if found.ours:
                    log.error("http call failed in the client", extra={"exception": type(error).__name__})
                return unanswered(found, mutates=call.changes, lost=lost)

    def _refusal(self, call: Call, status: int, headers: Mapping[str, str], raw: bytes) -> DifferentlyError:
        """The error of a call that was answered with a status of failure."""
        body: JsonValue = None
        try:
            check_type(headers, "json")
            body = parse_json(raw)
        except BadAnswer:
            pass
        failure = None if self._explain is None else self._explain(call, status, headers, body)
        if failure is None:
            details: dict[str, Detail] = {"status": status}
            told = call.hide(told_in(body) or "")
            # What a backend says of credentials is likely to quote one, and tells nothing that the code does not.
            if told and status not in {401, 403}:
                details["provider_message"] = told
            row = status_row(status, self._statuses)
            failure = refused(row, mutates=call.changes, lost=call.lost, **details)
        seconds = retry_after(headers, self._clock.now())
        if seconds is not None:
            failure.details["retry_after_seconds"] = seconds
        return self._redacted(failure)

    def _redacted(self, error: DifferentlyError) -> DifferentlyError:
        error.message = self._shown(error.message)
        error.args = (error.message,)
        error.details = {self._shown(name): self._shown_detail(detail) for name, detail in error.details.items()}
        error.__cause__ = error.__context__ = None
        return error

    def _shown(self, text: str) -> str:
        return self.redact(excerpt(self.redact(text)))

    def _shown_detail(self, detail: Detail) -> Detail:
        match detail:
            case str():
                return self._shown(detail)
            case list():
                return [self._shown(entry) for entry in detail]
            case _:
                return detail


class Streamed:
    """An answer that is being read. Each method reads it to its end, once."""

    def __init__(self, http: Http, call: Call, response: httpx.Response, countdown: Countdown, end: float) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self._http = http
        self._call = call
        self._response = response
        self._countdown = countdown
        self._end = end

    def accepted(self, *, switching: bool = False) -> Self:
        """This answer, if its status is a success and its headers say that it is from the backend; else raises."""
        try:
            if self._http._check is not None:
                self._http._check(self.headers)
        except BadAnswer as error:
            failure = self._http._failure(error, self._call)
        else:
            if self.status == SWITCHED if switching else 200 <= self.status < 300:
                return self
            failure = self._http._refusal(self._call, self.status, self.headers, self._reason())
        self.close()
        raise failure

    def _reason(self) -> bytes:
        """What comes with a status of failure, as far as it can be read."""
        raw = b""
        try:
            for chunk in within(unfolded(self._raw(), self.headers.get("content-encoding", "")), ERROR_BYTES_MAX):
                raw += chunk
        except Exception:  # cut, late, or endless: the status alone has to do
            log.debug("the body of a failed call could not be read")
        return raw

    def read(self) -> bytes:
        """The whole body, of at most the call's `answer_bytes_max`."""
        return b"".join(self.chunks())

    def json(self) -> JsonValue:
        """The body as JSON, without credentials of ours."""
        raw = self.read()
        body: JsonValue = self._guarded(lambda: self._parsed(raw))
        return body

    def _parsed(self, raw: bytes) -> JsonValue:
        check_type(self.headers, "json")
        body = self._http.secrets.redact_json(parse_json(raw), raw)
        inside = self._call.error_inside(body)
        if inside is not None:
            raise BadAnswer(f"The backend answered with success and an error: {inside}")
        return body

    def json_bytes(self) -> bytes:
        """The body, which says that it is JSON, without credentials of ours."""
        raw = self.read()
        return self._guarded(lambda: self._without_secrets(raw))

    def _without_secrets(self, raw: bytes) -> bytes:
        check_type(self.headers, "json")
        if not self._http.secrets.may_be_in(raw):
            return raw
        return _as_json(self._http.secrets.redact_json(parse_json(raw), raw))

    def chunks(self) -> Iterator[bytes]:
        """The body as it comes. Ends only if it is whole; otherwise raises."""
        encoding = self.headers.get("content-encoding", "")
        chunks = self._guarded(lambda: unfolded(self._raw(), encoding))
        return self._guarded_each(within(chunks, self._call.answer_bytes_max))

    def lines(self, bytes_max: int = LINE_BYTES_MAX) -> Iterator[bytes]:
        return self._guarded_each(lines(self.chunks(), bytes_max))

    def receive(self) -> bytes:
        """What the other side sent next on a connection that was switched; empty at its end."""
        data: bytes = self._guarded(lambda: self._timed(lambda: self._wire().read(_PIECE)))
        return data

    def send(self, data: bytes) -> None:
        """To the other side of a connection that was switched."""
        self._guarded(lambda: self._timed(lambda: self._wire().write(data)))

    def _wire(self) -> httpcore.NetworkStream:
        wire: httpcore.NetworkStream = self._response.extensions["network_stream"]
        return wire

    def _timed(self, act: Callable[[], T]) -> T:
        with self._countdown.until(self._end):
            return act()

    def interrupt(self) -> None:
        """Wake a thread that waits for more of the body: what it reads then is an end."""
        stream = self._response.extensions.get("network_stream")
        sock = stream.get_extra_info("socket") if stream is not None else None
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._response.close()

    def _raw(self) -> Iterator[bytes]:
        body = iter(self._response.stream)  # type: ignore[arg-type] # a synchronous client has synchronous streams
        while True:
            with self._countdown.until(self._end):
                chunk = next(body, None)
            if chunk is None:
                return
            yield chunk

    def _guarded_each(self, items: Iterator[bytes]) -> Iterator[bytes]:
        while True:
            item: bytes | None = self._guarded(lambda: next(items, None))
            if item is None:
                return
            yield item

    def _guarded(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except Exception as error:
            failure = self._http._failure(error, self._call)
        raise failure


class SharedClient:
    """The client of one pool, made by the first call that needs it."""

    def __init__(
        self,
        clock: Clock,
        rules: EndpointRules,
        authorities: str | None,
        transport: Transport | None,
        resolve: Resolve | None,
    ) -> None:
        self._clock = clock
        self._rules = rules
        self._authorities = authorities
        self._transport = transport
        self._resolve = resolve
        self._lock = threading.Lock()
        self._made: tuple[httpx.Client, Countdown] | None = None

    def client(self) -> tuple[httpx.Client, Countdown]:
        made = self._made
        if made is None:
            with self._lock:
                made = self._made = self._made or self._make()
        return made

    def _make(self) -> tuple[httpx.Client, Countdown]:
        from .connections import Countdown, GuardedTransport, make_client, system_resolve, trust_in

        countdown = Countdown(self._clock)
        if self._transport is not None:
            return make_client(self._transport()), countdown
        guarded = GuardedTransport(
            self._rules, countdown, self._clock, trust_in(self._authorities), self._resolve or system_resolve
        )
        return make_client(guarded), countdown

    def close(self) -> None:
        with self._lock:
            made, self._made = self._made, None
        if made is not None:
            made[0].close()


class _Upload:
    """A body that is made while it is sent; remembers what its maker raised."""

    def __init__(self, content: bytes | Iterable[bytes] | None) -> None:
        self._content = content
        self.failure: Exception | None = None

    def __iter__(self) -> Iterator[bytes]:
        assert self._content is not None
        assert not isinstance(self._content, bytes)
        try:
            yield from self._content
        except Exception as error:
            self.failure = error
            raise


def _as_json(body: JsonValue) -> bytes:
    try:
        return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can carry
        return json.dumps(body, separators=(",", ":")).encode()


def _is_streamed(content: bytes | Iterable[bytes] | None) -> bool:
    return content is not None and not isinstance(content, bytes)
