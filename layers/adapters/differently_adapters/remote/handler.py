"""Any adapter as a plugin: the protocol's server side as one function of a request.

It does no I/O of its own beyond reading the request's body, so any server can carry it: `as_wsgi` for those that speak
WSGI, `remote.serve` for one that needs nothing but the standard library.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import parse_qs, unquote, unquote_to_bytes

from pydantic import JsonValue, ValidationError

from differently_core.contract import (
    PROTOCOL_VERSION,
    Adapter,
    ExecEvent,
    Exit,
    Instance,
    Operation,
    Output,
    Owner,
    Progress,
    Quiet,
    SnapshotInfo,
    Target,
    Transition,
    Transitioned,
    effective_features,
    supports,
    unsupported,
)
from differently_core.errors import (
    BackendError,
    DifferentlyError,
    ExecUnconfirmed,
    Internal,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    ProviderUnavailable,
    Unauthenticated,
)
from differently_core.model.exec import (
    FILE_BYTES_MAX,
    JOB_OUTPUT_BYTES_MAX,
    OUTPUT_BYTES_MAX,
    ExecRequest,
    FileInfo,
    Job,
)
from differently_core.runtime.clock import SystemClock
from differently_core.runtime.ids import IdSource, SystemIds

from .envelope import failure_json, status_of
from .refs import with_owner, without_owner
from .wire import (
    BASE,
    BYTES,
    ENCODING_AUTO,
    HEADER_DEADLINE,
    HEADER_INSTALLATION,
    HEADER_PROTOCOL,
    HEADER_QUIET,
    HEADER_SANDBOX,
    NDJSON,
    Told,
    ToldCatalog,
    ToldCreate,
    ToldEgress,
    ToldExec,
    ToldExpiry,
    ToldExposure,
    ToldJobOutput,
    ToldPort,
    ToldResult,
    ToldSnapshot,
    ToldSnapshotRequest,
    ToldTargets,
    ToldTransition,
    ToldUntil,
    as_text,
    capacity_json,
    file_json,
    info_json,
    instance_on_wire,
)

log = logging.getLogger(__name__)
T = TypeVar("T", bound=Told)

JSON_BYTES_MAX: Final = 4 * 1024 * 1024
CHUNK_BYTES: Final = 65_536
DEADLINE_SECONDS: Final = 120.0
"""Of an operation whose caller gave none, as a version 1 client does."""
DEADLINE_SECONDS_MAX: Final = 8_100.0
QUIET_SECONDS_MAX: Final = 60.0
PROTOCOL_HEADER: Final = "Differently-Adapter-Protocol"


class Body(Protocol):
    """The request's body. `read` gives at most so many bytes, none at its end, and raises when it was cut off."""

    def read(self, size: int, /) -> bytes: ...


Headers = list[tuple[str, str]]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Headers
    body: Iterable[bytes]


@dataclass(frozen=True)
class Request:
    """`segments` are those after the base path, each decoded by itself: a slash inside one stays in it."""

    method: str
    segments: tuple[str, ...]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Body = field(repr=False)

    def wants_body(self) -> bool:
        return "return=representation" in self.headers.get("prefer", "")

    def seconds(self, header: str, default: float, most: float) -> float:
        text = self.headers.get(header, "")
        return min(float(text), most) if re.fullmatch(r"[0-9]{1,6}(?:\.[0-9]{1,6})?", text) else default


class Handler:
    """`token` is what callers must present; None takes everybody, which is for loopback only."""

    def __init__(self, adapter: Adapter, token: str | None, ids: IdSource | None = None) -> None:
        if token is not None and not token.strip():
            raise ValueError("an empty token would let everybody in; give None if that is meant")
        self.adapter = adapter
        self._ids = ids or SystemIds(SystemClock())
        self._token = None if token is None else token.encode()

    def __call__(self, method: str, path: str, headers: Mapping[str, str], body: Body) -> Answer:
        """Answer one request. `path` is as it was sent, with its query; the answer's body may come while work runs."""
        known = {name.lower(): value for name, value in headers.items()}
        try:
            self._check_token(known)
            self._check_protocol(known)
            answer = self._answer(_parsed(method, path, known, body))
        except DifferentlyError as error:
            answer = _failure(error)
        except Exception:
            log.exception("plugin call failed", extra={"method": method})
            answer = _failure(Internal("The plugin failed; its log says how."))
        return replace(answer, headers=[(PROTOCOL_HEADER, PROTOCOL_VERSION), *answer.headers])

    def _check_protocol(self, headers: Mapping[str, str]) -> None:
        theirs = headers.get(HEADER_PROTOCOL)
        if theirs is not None and theirs.strip() != PROTOCOL_VERSION:
            raise ProviderUnavailable(
                f"The caller speaks adapter protocol {theirs.strip()[:20]!r}, this plugin {PROTOCOL_VERSION!r}.",
                settled=True,
            )

    def _check_token(self, headers: Mapping[str, str]) -> None:
        if self._token is None:
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # Compared even when the scheme is wrong, so that every refusal takes the same time.
        same = hmac.compare_digest(given.strip().encode(errors="surrogateescape"), self._token)
        if not same or scheme.lower() != "bearer":
            raise Unauthenticated("Present the plugin's token: Authorization: Bearer <token>.")

    # Routes.

    def _answer(self, request: Request) -> Answer:
        match (request.method, *request.segments):
            case ("GET", "info"):
                return _json(self._info())
            case ("GET", "capacity"):
                return _json(capacity_json(self.adapter.capacity()))
            case ("GET", "health"):
                self.adapter.health()
                return _json({"status": "ok"})
            case ("GET", "credential"):
                self._need(Operation.VERIFY_CREDENTIAL).verify_credential()
                return _json({"status": "ok"})
            case ("GET", "catalog"):
                found = self._need(Operation.DISCOVER).discover()
                return _json(ToldCatalog(templates=dict(found.templates), regions=dict(found.regions)).json_())
            case ("POST", "observe"):
                return self._observe(request)
            case (_, "instances"):
                return self._instances(request)
            case (_, "instances", ref, *rest):
                return self._instance(request, self._target(request, ref), tuple(rest))
            case (_, "snapshots", ref):
                return self._snapshot(request, ref)
            case _:
                raise _no_route()

    def _instances(self, request: Request) -> Answer:
        match request.method:
            case "POST":
                return self._create(request)
            case "GET":
                return self._list(request)
            case "DELETE":
                self.adapter.delete(Target(Owner(_asked(request, "installation"), _asked(request, "sandboxId"))))
                return _nothing()
            case _:
                raise _no_route()

    def _instance(self, request: Request, target: Target, rest: tuple[str, ...]) -> Answer:
        match (request.method, *rest):
            case ("GET",):
                return _json(_instance(self.adapter.get(target)))
            case ("DELETE",):
                self.adapter.delete(target)
                return _nothing()
            case ("POST", "exec"):
                return self._exec(request, target)
            case (_, "files", *_):
                return self._files(request, target, rest[1:])
            case (_, "jobs", *_):
                return self._jobs(request, target, rest[1:])
            case (_, "ports", *_):
                return self._ports(request, target, rest[1:])
            case ("POST", "snapshots"):
                asked = _read(request, ToldSnapshotRequest).value()
                asked = asked if asked.operation else replace(asked, operation=self._ids.new("op"))
                taken = self._need(Operation.SNAPSHOT).snapshot(target, asked, _deadline(request))
                return _json(_snapshot(taken))
            case ("POST", "renew"):
                until = _read(request, ToldUntil).until
                return _json(ToldExpiry(expires_at=self._need(Operation.RENEW).renew(target, until)).json_())
            case ("PUT", "egress"):
                self._need(Operation.EGRESS_SET).egress_set(target, _read(request, ToldEgress).value())
                return _nothing()
            case ("POST", action):
                return self._act(request, target, action)
            case _:
                raise _no_route()

    # The pool.

    def _info(self) -> dict[str, JsonValue]:
        told = self.adapter.capabilities()
        offered = [operation.value for operation in Operation if _offers(self.adapter, operation)]
        features = effective_features(self.adapter, told.features)
        return info_json(self.adapter.info(), told, features, offered)

    def _need(self, operation: Operation) -> Adapter:
        """The adapter, if it offers the operation; a refusal comes before any work of it."""
        if not _offers(self.adapter, operation):
            raise unsupported(self.adapter, operation, "this plugin")
        return self.adapter

    def _target(self, request: Request, ref: str) -> Target:
        """Whose instance is meant: by the caller's word, by the ref's, or by both if they agree."""
        own, carried = without_owner(ref)
        told = _owner(request)
        if told is None and carried is None:
            raise NotFound("This ref is none of this plugin's.")
        if told is not None and carried is not None and told != carried:
            raise NotFound(f"Sandbox {told.sandbox} has no such instance.")
        owner = told or carried
        assert owner is not None
        return Target(owner, own)

    def _observe(self, request: Request) -> Answer:
        asked = _read(request, ToldTargets).targets
        targets = [
            Target(Owner(one.installation, one.sandbox_id), None if one.ref is None else without_owner(one.ref)[0])
            for one in asked
        ]
        seen = self._need(Operation.OBSERVE_MANY).observe_many(targets)
        return _json(
            [
                {"error": failure_json(one)} if isinstance(one, DifferentlyError) else {"instance": _instance(one)}
                for one in seen
            ]
        )

    # Lifecycle.

    def _create(self, request: Request) -> Answer:
        told = _read(request, ToldCreate)
        snapshot = None if told.from_snapshot is None else without_owner(told.from_snapshot)[0]
        asked = told.value(snapshot)
        if not asked.owner.installation:
            raise InvalidRequest("The label differently.dev/installation is missing.", field="labels")
        return _json(_instance(self.adapter.create(asked, _deadline(request))))

    def _list(self, request: Request) -> Answer:
        installation = _asked(request, "installation")
        sandbox = request.query.get("sandboxId")
        if sandbox is None:
            return _json([_instance(instance) for instance in self.adapter.list(installation)])
        try:
            return _json([_instance(self.adapter.get(Target(Owner(installation, sandbox))))])
        except NotFound:
            return _json([])

    def _act(self, request: Request, target: Target, action: str) -> Answer:
        deadline = _deadline(request)
        match action:
            case "stop":
                return _told(request, _instance(self._need(Operation.STOP).stop(target, deadline)))
            case "start":
                return _told(request, _instance(self._need(Operation.START).start(target, deadline)))
            case "pause":
                change = self._need(Operation.PAUSE).pause
            case "resume":
                change = self._need(Operation.RESUME).resume
            case "call-off":
                change = self._need(Operation.CALL_OFF).call_off
            case _:
                raise _no_route()
        changed = change(target, self._transition(request, target), deadline)
        if not request.wants_body() and changed.progress is not Progress.DONE:
            # Nothing in the answer could say so: version 1 takes any success for the end of it.
            failed = changed.progress is Progress.FAILED
            raise ProviderUnavailable(changed.message or f"The {action} is {changed.progress}.", settled=failed)
        return _told(request, _transitioned(changed))

    def _transition(self, request: Request, target: Target) -> Transition:
        """Version 1 names no incarnation and no attempt: it means the one that is there, and each call is a new one."""
        asked = _read(request, ToldTransition).value()
        if asked.operation:
            return asked
        return Transition(self._ids.new("op"), asked.incarnation or self.adapter.get(target).incarnation)

    def _snapshot(self, request: Request, ref: str) -> Answer:
        target = self._target(request, ref)
        assert target.ref is not None
        match request.method:
            case "GET":
                return _json(_snapshot(self._need(Operation.SNAPSHOT_GET).snapshot_get(target.owner, target.ref)))
            case "DELETE":
                self._need(Operation.SNAPSHOT_DELETE).snapshot_delete(target.owner, target.ref)
                return _nothing()
            case _:
                raise _no_route()

    # Commands.

    def _exec(self, request: Request, target: Target) -> Answer:
        told = _read(request, ToldExec)
        if request.query.get("stream") == "1":
            quiet = request.seconds(HEADER_QUIET, 0.0, QUIET_SECONDS_MAX)
            events = self._need(Operation.EXEC_STREAM).exec_stream(target, _command(told), quiet or QUIET_SECONDS_MAX)
            return Answer(200, [("Content-Type", NDJSON)], _lines(events, told.encoding, tells_quiet=quiet > 0))
        kept = OUTPUT_BYTES_MAX if told.output_bytes_max is None else told.output_bytes_max
        result = self.adapter.exec(target, _command(told), kept)
        return _json(ToldResult.of(result, told.encoding).json_())

    def _jobs(self, request: Request, target: Target, rest: tuple[str, ...]) -> Answer:
        match (request.method, *rest):
            case ("POST", job):
                started = self._need(Operation.JOB_START).job_start(target, job, _command(_read(request, ToldExec)))
                return _json(_job(started))
            case ("GET", job):
                return _json(_job(self._need(Operation.JOB_STATUS).job_status(target, job)))
            case ("GET", job, ("stdout" | "stderr") as stream):
                offset, limit = _number(request, "offset", 0), _number(request, "limit", JOB_OUTPUT_BYTES_MAX)
                read = self._need(Operation.JOB_OUTPUT).job_output(
                    target, job, stream, offset, min(limit, JOB_OUTPUT_BYTES_MAX)
                )
                text, encoding = as_text(read.data, ENCODING_AUTO)
                shown = ToldJobOutput(data=text, encoding=encoding, next=read.next, ended=read.ended)
                return _json(shown.json_())
            case ("POST", job, "stop"):
                return _json(_job(self._need(Operation.JOB_STOP).job_stop(target, job)))
            case ("POST", job, "interrupt"):
                return _json(_job(self._need(Operation.JOB_INTERRUPT).job_interrupt(target, job)))
            case _:
                raise _no_route()

    # Files and ports.

    def _files(self, request: Request, target: Target, rest: tuple[str, ...]) -> Answer:
        path = _asked(request, "path")
        match (request.method, *rest):
            case ("GET",):
                return _json([file_json(file) for file in self._need(Operation.FILE_LIST).file_list(target, path)])
            case ("DELETE",):
                self._need(Operation.FILE_DELETE).file_delete(target, path)
                return _nothing()
            case ("GET", "info"):
                return _json(file_json(self._need(Operation.FILE_STAT).file_stat(target, path)))
            case ("GET", "content"):
                content = self._need(Operation.FILE_READ).file_read(target, path)
                length = ("Content-Length", str(content.size))
                return Answer(200, [("Content-Type", BYTES), length], content.chunks)
            case ("PUT", "content"):
                written: FileInfo = self._need(Operation.FILE_WRITE).file_write(target, path, _chunks(request))
                return _told(request, file_json(written))
            case _:
                raise _no_route()

    def _ports(self, request: Request, target: Target, rest: tuple[str, ...]) -> Answer:
        match (request.method, *rest):
            case ("POST",):
                asked = _read(request, ToldPort)
                shown = self._need(Operation.PORT_EXPOSE).port_expose(target, asked.port, asked.seconds)
                return _json(ToldExposure(url=shown.url, expires_at=shown.expires_at).json_())
            case ("DELETE", port) if re.fullmatch("[0-9]{1,5}", port):
                self._need(Operation.PORT_REVOKE).port_revoke(target, int(port))
                return _nothing()
            case _:
                raise _no_route()


def _offers(adapter: Adapter, operation: Operation) -> bool:
    """Declared, and there: a plugin may be older than the contract it is loaded with."""
    return operation in adapter.operations and supports(adapter, operation) and hasattr(adapter, operation.value)


# Requests.


def _parsed(method: str, path: str, headers: Mapping[str, str], body: Body) -> Request:
    where, _, query = path.partition("?")
    if not where.startswith(f"{BASE}/"):
        raise _no_route()
    try:
        segments = tuple(unquote_to_bytes(part).decode() for part in where.removeprefix(f"{BASE}/").split("/"))
        asked = parse_qs(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict", max_num_fields=20)
    except ValueError:
        raise InvalidRequest("The path or the query cannot be read.", field="path") from None
    if not all(segments):
        raise _no_route()
    return Request(method.upper(), segments, {name: values[-1] for name, values in asked.items()}, headers, body)


def _no_route() -> NotFound:
    return NotFound("This plugin protocol has no such route.")


def _owner(request: Request) -> Owner | None:
    installation, sandbox = (
        unquote(request.headers.get(header, "")) for header in (HEADER_INSTALLATION, HEADER_SANDBOX)
    )
    return Owner(installation, sandbox) if installation and sandbox else None


def _deadline(request: Request) -> float:
    return request.seconds(HEADER_DEADLINE, DEADLINE_SECONDS, DEADLINE_SECONDS_MAX)


def _asked(request: Request, name: str) -> str:
    value = request.query.get(name)
    if not value:
        raise InvalidRequest(f"The query parameter {name} is missing.", field=name)
    return value


def _number(request: Request, name: str, default: int) -> int:
    text = request.query.get(name, str(default))
    if not re.fullmatch("[0-9]{1,15}", text):
        raise InvalidRequest(f"The query parameter {name} must be a number.", field=name)
    return int(text)


def _read(request: Request, shape: type[T]) -> T:
    """The body as JSON of a shape; no body at all is an empty object, which version 1 sends to actions."""
    raw = bytearray()
    while chunk := request.body.read(CHUNK_BYTES):
        raw += chunk
        if len(raw) > JSON_BYTES_MAX:
            raise PayloadTooLarge(f"A JSON body can have {JSON_BYTES_MAX} bytes.", limit=JSON_BYTES_MAX)
    try:
        return shape.model_validate(json.loads(raw) if raw.strip() else {})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        refusal = InvalidRequest(f"{where}: {first['msg']}.", field=where)
    except (ValueError, RecursionError):
        refusal = InvalidRequest("The body is not JSON.", field="body")
    raise refusal


def _command(told: ToldExec) -> ExecRequest:
    try:
        return told.value()
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "command"
        refusal = InvalidRequest(f"{where}: {first['msg']}.", field=where)
    raise refusal


def _chunks(request: Request) -> Iterator[bytes]:
    size = 0
    while chunk := request.body.read(CHUNK_BYTES):
        size += len(chunk)
        if size > FILE_BYTES_MAX:
            raise PayloadTooLarge(f"A file can hold {FILE_BYTES_MAX} bytes.", limit=FILE_BYTES_MAX)
        yield chunk


# Answers.


def _json(value: Any, status: int = 200) -> Answer:
    data = json.dumps(value, separators=(",", ":")).encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(data)))]
    return Answer(status, headers, [data])


def _nothing() -> Answer:
    return Answer(204, [], [])


def _told(request: Request, value: Any) -> Answer:
    """Version 1 answers with nothing; who prefers to be told what came of it is told."""
    return _json(value) if request.wants_body() else _nothing()


def _failure(error: DifferentlyError) -> Answer:
    return _json({"error": failure_json(error)}, status_of(error))


def _instance(instance: Instance) -> dict[str, JsonValue]:
    return instance_on_wire(instance, with_owner(instance.ref, instance.owner))


def _transitioned(change: Transitioned) -> dict[str, JsonValue]:
    return {"progress": change.progress.value, "instance": _instance(change.instance), "message": change.message}


def _snapshot(snapshot: SnapshotInfo) -> dict[str, JsonValue]:
    return ToldSnapshot.of(snapshot, with_owner(snapshot.ref, snapshot.owner)).json_()


def _job(job: Job) -> dict[str, JsonValue]:
    return job.model_dump(mode="json", by_alias=True, exclude_none=True)


def _lines(events: Iterator[ExecEvent], encoding: str | None, *, tells_quiet: bool) -> Iterator[bytes]:
    """One line for each event, and exactly one that says how it ended, whatever happens on the way."""
    text = _TextPieces(encoding)
    try:
        for event in events:
            if isinstance(event, Exit):
                yield from text.rest()
                yield _line(_exit(event))
                return
            if isinstance(event, Output):
                yield from text.pieces(event)
            elif tells_quiet and isinstance(event, Quiet):
                yield _line({"quiet": True})
        ending: DifferentlyError = ExecUnconfirmed("The end of the command was not seen.")
    except DifferentlyError as error:
        ending = error
    except Exception:
        log.exception("plugin stream failed")
        ending = ExecUnconfirmed("The plugin failed while the command ran.")
    finally:
        leave: Callable[[], None] | None = getattr(events, "close", None)
        if leave is not None:
            leave()
    yield from text.rest()
    last: dict[str, JsonValue] = {"error": ending.message, "code": ending.code}
    if isinstance(ending, BackendError):
        last["settled"] = ending.settled
    yield _line(last)


class _TextPieces:
    """Output as lines. For a client that knows only text, characters are not cut between two events."""

    def __init__(self, encoding: str | None) -> None:
        self._encoding = encoding
        self._begun: dict[str, bytes] = {}

    def pieces(self, event: Output) -> Iterator[bytes]:
        data = event.data
        if self._encoding != ENCODING_AUTO:
            data = self._begun.pop(event.stream, b"") + data
            keep = _unfinished(data)
            if keep:
                self._begun[event.stream] = data[-keep:]
                data = data[:-keep]
        if data:
            yield self._line(event.stream, data)

    def rest(self) -> Iterator[bytes]:
        for stream, data in self._begun.items():
            yield self._line(stream, data)
        self._begun = {}

    def _line(self, stream: str, data: bytes) -> bytes:
        text, encoding = as_text(data, self._encoding)
        line: dict[str, JsonValue] = {"stream": stream, "data": text}
        return _line(line if encoding is None else {**line, "encoding": encoding})


def _unfinished(data: bytes) -> int:
    """How many bytes at the end are the beginning of a character."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            length = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4 if byte & 0xF8 == 0xF0 else 1
            return back if back < length else 0
    return 0


def _exit(event: Exit) -> dict[str, JsonValue]:
    return {
        "exitCode": event.exit_code, "durationMs": event.duration_ms, "timedOut": event.timed_out,
        "stdoutDroppedBytes": event.stdout_dropped_bytes, "stderrDroppedBytes": event.stderr_dropped_bytes,
    }  # fmt: skip


def _line(value: Mapping[str, JsonValue]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
