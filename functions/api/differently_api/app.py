"""The API: four entry points, each taking an API Gateway event and answering as API Gateway expects.

    control, admin, data    REST proxy events; each serves the routes of its own group
    authorizer              REQUEST authorizer events

`data` may answer with a body that is an iterator of bytes. Whoever owns the connection sends the chunks as they come,
closes the iterator when the client is gone, and breaks the connection off when the iterator raises.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from pydantic import BaseModel

from differently_core.errors import InvalidRequest, NotFound
from differently_core.operations.core import Caller, Core
from differently_core.operations.keys import Peppers
from differently_core.runtime.ids import is_id

from . import auth
from .failures import JSON, failure, unauthorized
from .parsing import JSON_BYTES_MAX, read_json, read_query
from .proxy import Event, Request, Response, request_id, response
from .route import Answer, AnyRoute, Call, Group, NoBody, Reply
from .router import Match, Router
from .routes import ROUTES
from .service import Service

log = logging.getLogger("differently.api")
RAW_BYTES_MAX = 4 * 1024 * 1024
UPLOADS = "POST /v1/sandboxes/{id}/files/uploads"
UPLOAD_INSTEAD = f"send it to an upload ({UPLOADS}), which takes up to 100 MiB"
BODY_TOO_LARGE = (
    f"A body can hold {RAW_BYTES_MAX} bytes (4 MiB) at most; send less, and a large file to an upload ({UPLOADS})."
)
"""What is said where a request is too large to be read at all."""
ALWAYS: Mapping[str, str] = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
PREFLIGHT_SECONDS = 600
EXPOSED = "Location, Retry-After, X-Request-Id, Idempotent-Replayed, Content-Disposition, X-Next-Cursor"


class App:
    """Built once for each process. Holds no state of its own, so that threads may share it.

    `allowed_origins` are the web origins that may read answers in a browser; none by default.
    """

    def __init__(
        self, core: Core, peppers: Peppers, *, version: str = "0.1.0", allowed_origins: frozenset[str] = frozenset()
    ) -> None:
        self._service = Service(core, peppers, version, cache(lambda: _document(version)))
        self._router = Router(ROUTES)
        self._origins = allowed_origins

    def control(self, event: Event, context: object = None) -> Response:
        return self._serve(Group.CONTROL, event, context)

    def admin(self, event: Event, context: object = None) -> Response:
        return self._serve(Group.ADMIN, event, context)

    def data(self, event: Event, context: object = None) -> Response:
        return self._serve(Group.DATA, event, context)

    def authorizer(self, event: Event, context: object = None) -> dict[str, Any]:
        return auth.authorize(self._service.core, self._service.peppers, event)

    def route(self, method: str, path: str) -> AnyRoute | None:
        """Which route a front should call an entry point for; None is answered by any of them."""
        try:
            return self._router.match(method, path).route
        except (NotFound, InvalidRequest):
            return None

    def serve(self, event: Event, context: object = None) -> Response:
        """Whichever entry point the path belongs to: for a front that stands in for the gateway."""
        route = self.route(str(event.get("httpMethod")), str(event.get("path")))
        return self._serve(route.group if route is not None else Group.CONTROL, event, context)

    def refused(self, event: Event) -> Response:
        """What the gateway answers where the authorizer raised `Unauthorized`; for a front that stands in for it."""
        identity = request_id(event) or self._service.core.ids.new("req")
        request = Request.of(event, None, identity)
        return response(self._completed(unauthorized(identity), request))

    def _serve(self, group: Group, event: Event, context: object) -> Response:
        core = self._service.core
        started = core.clock.monotonic()
        identity = request_id(event) or core.ids.new("req")
        request = Request.of(event, context, identity)
        entry = _LogEntry(request, core, started)
        try:
            answer = self._answer(group, request, entry)
        except Exception as error:
            answer = failure(error, identity)
        whole = self._completed(answer, request)
        if isinstance(whole.body, Iterator):
            whole = replace(whole, body=Sending(whole.body, entry, answer))
        else:
            entry.write(answer)
        return response(whole)

    def _answer(self, group: Group, request: Request, entry: _LogEntry) -> Answer:
        if request.method == "OPTIONS":
            return self._preflight(request)
        match = self._router.match(request.method, request.path)
        if match.route.group is not group:
            raise NotFound(f"{match.route.name} is served by the {match.route.group} function.")
        entry.route = match.route
        entry.params = match.params
        entry.caller = auth.caller(self._service.core, match.route, request)
        return finished(match.route, match.route.handle(self._call(match, entry.caller, request)))

    def _call(self, match: Match, caller: Caller, request: Request) -> Call[Any, Any]:
        query = read_query(match.route.query, request.query)
        return Call(self._service, caller, request, match.params, _body(match.route, request), query)

    def _preflight(self, request: Request) -> Answer:
        """A browser asks what it may send; only origins on the list learn anything."""
        allowed = self._router.allowed(request.path)
        if not allowed:
            raise NotFound("There is no such path in this API; GET /openapi.json lists them.")
        if request.headers.get("origin") not in self._origins:
            return Answer(204, headers={"Allow": ", ".join(allowed)})
        return Answer(
            204,
            headers={
                "Access-Control-Allow-Methods": ", ".join(allowed),
                "Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key",
                "Access-Control-Max-Age": str(PREFLIGHT_SECONDS),
            },
        )

    def _completed(self, answer: Answer, request: Request) -> Answer:
        """With the headers that every answer carries."""
        headers = {**ALWAYS, **answer.headers, **self._cors(request), "X-Request-Id": request.id}
        return replace(answer, headers=headers)

    def _cors(self, request: Request) -> Mapping[str, str]:
        origin = request.headers.get("origin")
        if origin is None or origin not in self._origins:
            return {}
        return {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": EXPOSED, "Vary": "Origin"}


def _document(version: str) -> str:
    from .openapi import document_json  # only the one route that serves it pays for making it

    return document_json(ROUTES, version)


def _body(route: AnyRoute, request: Request) -> object:
    if route.body is bytes:
        return request.body(RAW_BYTES_MAX, "A file sent in one request", UPLOAD_INSTEAD)
    if route.body is NoBody:
        return NoBody()
    return read_json(route.body, request.body(JSON_BYTES_MAX, "A body"))


def finished(route: AnyRoute, reply: Reply) -> Answer:
    """A model becomes JSON with the route's own status."""
    return json_answer(reply, route.status) if isinstance(reply, BaseModel) else reply


def json_answer(model: BaseModel, status: int) -> Answer:
    return Answer(status, model.model_dump_json(by_alias=True, exclude_none=True), {"Content-Type": JSON})


class _LogEntry:
    """One line for each request: who, what, how it ended and how long it took. Never what was sent or answered."""

    def __init__(self, request: Request, core: Core, started: float) -> None:
        self._request = request
        self._core = core
        self._started = started
        self.route: AnyRoute | None = None
        self.params: Mapping[str, str] = {}
        self.caller: Caller | None = None

    def write(self, answer: Answer, **facts: object) -> None:
        sandbox = self.params.get("id", "")
        line: dict[str, object] = {
            "requestId": self._request.id,
            "method": self._request.method,
            "route": self.route.path if self.route is not None else None,
            "status": answer.status,
            "durationMs": round((self._core.clock.monotonic() - self._started) * 1000, 1),
            "keyId": self.caller.actor if self.caller is not None else None,
            "org": self.caller.org if self.caller is not None else None,
            "sandboxId": sandbox if is_id("sbx", sandbox) else None,
        }
        log.info("request", extra={**line, **answer.facts, **facts})


class Sending:
    """An iterator body on its way out. Its request's line is written when it ends, however it ends."""

    def __init__(self, chunks: Iterator[bytes], entry: _LogEntry, answer: Answer) -> None:
        self._chunks = chunks
        self._entry = entry
        self._answer = answer
        self._bytes = 0
        self._over = False

    def __iter__(self) -> Sending:
        return self

    def __next__(self) -> bytes:
        try:
            chunk = next(self._chunks)
        except StopIteration:
            self._end("whole")
            raise
        except Exception as error:
            log.warning("broken off", exc_info=error)
            self._end("broken")
            raise
        self._bytes += len(chunk)
        return chunk

    def close(self) -> None:
        """The client is gone, or the front gives up; what was begun at the backend is let go."""
        close = getattr(self._chunks, "close", None)
        if close is not None:
            close()
        self._end("left")

    def _end(self, how: str) -> None:
        if not self._over:
            self._over = True
            self._entry.write(self._answer, streamed=how, bytes=self._bytes)
