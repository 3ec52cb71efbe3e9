"""Calling the functions as API Gateway calls them: who may call is settled first, then the right one is invoked.

Control and admin run on threads of their own, because their answer is owed within the gateway's 29 seconds whatever
they do; data runs on the connection's thread and may take fifteen minutes.
"""

from __future__ import annotations

import ipaddress
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from differently_api.failures import UNAUTHENTICATED
from differently_core.errors import DifferentlyError, Forbidden, Internal, Unauthenticated

from .gateway import (
    PAYLOAD_BYTES_MAX,
    Answer,
    Event,
    Policy,
    Request,
    answer_of,
    authorizer_event,
    method_arn,
    proxy_event,
    refusal,
)

log = logging.getLogger(__name__)
GATEWAY_SECONDS_MAX = 29.0
DATA_SECONDS_MAX = 900.0
THREADS_MAX = 64
"""Calls of control and admin at one time; others wait, within their 29 seconds."""
AUTHORIZER_SECONDS = 60.0
AUTHORIZERS_MAX = 1_000

Handler = Callable[[Event, object], Any]


@dataclass(frozen=True)
class Target:
    """Where a request goes. `timed` answers are owed within the gateway's limit."""

    name: str
    handler: Handler
    public: bool
    timed: bool


class Resolve(Protocol):
    def __call__(self, method: str, path: str) -> Target: ...


@dataclass(frozen=True)
class Context:
    """What Lambda tells a function about its own invocation."""

    function_name: str
    aws_request_id: str
    ends: float
    memory_limit_in_mb: int = 1024
    function_version: str = "$LATEST"

    @property
    def invoked_function_arn(self) -> str:
        return f"arn:aws:lambda:us-east-1:000000000000:function:{self.function_name}"

    def get_remaining_time_in_millis(self) -> int:
        return max(0, int((self.ends - time.monotonic()) * 1000))


class Late(Exception):
    """The function has not answered within the gateway's limit."""


class Functions:
    def __init__(
        self, authorizer: Handler, resolve: Resolve, origins: frozenset[str] = frozenset(), *,
        gateway_seconds: float = GATEWAY_SECONDS_MAX,
    ) -> None:  # fmt: skip
        """`origins` are the web origins whose pages may call."""
        self._authorizer = authorizer
        self._origins = origins
        self._resolve = resolve
        self._gateway_seconds = gateway_seconds
        self._policies = _Policies()
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="function")

    def answer(self, request: Request) -> Answer:
        """Never raises."""
        try:
            check_origin(request, self._origins)
            target = self._resolve(request.method, request.path)
            caller = None if target.public else self._authorize(request)
            bytes_max = PAYLOAD_BYTES_MAX if target.timed else None
            return answer_of(self._invoke(target, request, caller), bytes_max)
        except Late:
            log.warning("answer too late", extra={"requestId": request.identifier})
            late = Internal(f"The call took longer than {self._gateway_seconds:g} s; what it began may still finish.")
            return refusal(late, request.identifier, 504)
        except DifferentlyError as error:
            log.info("request refused", extra={"requestId": request.identifier, "code": error.code})
            return refusal(error, request.identifier, 502 if isinstance(error, Internal) else None)
        except Exception:
            log.exception("function failed", extra={"requestId": request.identifier})
            return refusal(Internal("The function failed; its log says why."), request.identifier, 502)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _invoke(self, target: Target, request: Request, caller: Mapping[str, Any] | None) -> Any:
        event = proxy_event(request, caller)
        seconds = self._gateway_seconds if target.timed else DATA_SECONDS_MAX
        context = Context(target.name, request.identifier, time.monotonic() + seconds)
        if not target.timed:
            return target.handler(event, context)
        call = self._threads.submit(target.handler, event, context)
        if call not in wait([call], seconds).done:
            call.cancel()  # one that has not begun need not
            raise Late
        return call.result()

    def _authorize(self, request: Request) -> Mapping[str, Any]:
        """The authorizer's context. Its answer is kept by the `Authorization` header alone, as deployed."""
        token = request.header("authorization")
        if not token:
            raise Unauthenticated(UNAUTHENTICATED)
        policy = self._policies.get(token)
        if policy is None:
            context = Context("authorizer", request.identifier, time.monotonic() + self._gateway_seconds)
            policy = Policy.of(_ask(self._authorizer, authorizer_event(request), context))
            self._policies.put(token, policy)
        policy.check(method_arn(request))
        return policy.context


def _ask(authorizer: Handler, event: Event, context: Context) -> Mapping[str, Any]:
    """An authorizer says 401 by failing with exactly this word; any other failure of it is a fault."""
    try:
        answer: Mapping[str, Any] = authorizer(event, context)
    except DifferentlyError:
        raise
    except Exception as error:
        if str(error) != "Unauthorized":
            raise
        raise Unauthenticated(UNAUTHENTICATED) from None
    return answer


class _Policies:
    """What the authorizer answered, for a minute; the oldest goes first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[float, Policy]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, token: str) -> Policy | None:
        with self._lock:
            kept = self._kept.get(token)
            return kept[1] if kept is not None and time.monotonic() < kept[0] else None

    def put(self, token: str, policy: Policy) -> None:
        with self._lock:
            self._kept[token] = (time.monotonic() + AUTHORIZER_SECONDS, policy)
            self._kept.move_to_end(token)
            while len(self._kept) > AUTHORIZERS_MAX:
                self._kept.popitem(last=False)


def check_origin(request: Request, allowed: frozenset[str]) -> None:
    """Refuse what a foreign web page makes a browser send here, under our own name or under one that it points here.

    Raises `Forbidden`. Pages of `allowed` origins may call; only they can read the answers.
    """
    if not _is_local(f"//{request.header('host') or ''}"):
        raise Forbidden("This server answers under localhost and loopback addresses only.")
    origin = request.header("origin")
    if origin is not None and origin not in allowed and not _is_local(origin):
        raise Forbidden("Web pages from elsewhere may not call this server; ALLOWED_ORIGINS names those that may.")


def _is_local(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
