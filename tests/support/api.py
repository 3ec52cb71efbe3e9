"""A whole control plane in one object: the API as the gateway drives it, and the work behind it, when a test says so.

Messages that operations send are kept until `settle` delivers them, so a test decides what has happened and what has
not. Time stands still until `pass_time` moves it.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from differently_adapters.pools import PoolAdapters
from differently_adapters.providers.fake import FakeAdapter, FakeBackend
from differently_api.app import App
from differently_api.route import Access
from differently_core.model.event import Event
from differently_core.model.record import Table
from differently_core.model.tenancy import KeyScope
from differently_core.operations import (
    capturing,
    cleanup,
    closing,
    comparing,
    delivering,
    dispatch,
    keys,
    pools,
    ports,
    reconcile,
    sealing,
    sweep,
    tenants,
    worker,
)  # fmt: skip
from differently_core.operations.catalog import Catalog
from differently_core.operations.core import Core, Tuning, system
from differently_core.operations.credentials import PoolCredentials, Vaults
from differently_core.runtime.clock import Clock, VirtualClock
from differently_core.runtime.ids import IdSource, SandboxId, SeededIds, SnapshotId, WebhookId
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Store
from differently_core.store.sealing import MemorySealer, Sealer
from differently_core.store.staging import MemoryStaging
from tests.support.receivers import Receivers

STAGE = "arn:aws:execute-api:eu-central-1:123456789012:abcdef1234/v1"
STEPS_MAX = 10_000
BOOT = system("test")
_SEEDS = itertools.count(1)
"""The fake shares its backends by installation within a process, so no two worlds may have the same one."""


@dataclass
class Mail:
    """Nudges that wait for `settle`; a sandbox that is nudged twice meanwhile is stepped twice."""

    messages: deque[tuple[str, str, int]] = field(default_factory=deque)

    def worker(self, sandbox: str) -> None:
        self.messages.append(("worker", sandbox, 0))

    def cleanup(self, sandbox: str, attempt: int) -> None:
        self.messages.append(("cleanup", sandbox, attempt))

    def snapshot(self, snapshot: str) -> None:
        self.messages.append(("snapshot", snapshot, 0))

    def port(self, sandbox: str, port: int) -> None:
        self.messages.append(("port", sandbox, port))

    def dispatch(self) -> None:
        if ("dispatch", "", 0) not in self.messages:
            self.messages.append(("dispatch", "", 0))

    def closing(self, tenant: str) -> None:
        self.messages.append(("closing", tenant, 0))

    def deliver(self, webhook: str) -> None:
        self.messages.append(("deliver", webhook, 0))

    def reconcile(self, pool: str) -> None:
        self.messages.append(("reconcile", pool, 0))


@dataclass(frozen=True)
class Reply:
    """What a client of the gateway gets. Reading `body` drains a streamed answer."""

    status: int
    headers: Mapping[str, str]
    chunks: Iterator[bytes]
    streamed: bool

    @property
    def raw(self) -> bytes:
        return b"".join(self.chunks)

    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def code(self) -> str:
        """The code of an error."""
        return str(self.json()["error"]["code"])

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.raw.splitlines() if line]


@dataclass(frozen=True)
class Tenant:
    org: str
    project: str
    token: str


class World:
    def __init__(
        self, store: Store | None = None, *, seed: int | None = None, tuning: Tuning | None = None,
        sealer: Sealer | None = None, vaults: Vaults | None = None, ids: Callable[[Clock], IdSource] | None = None,
    ) -> None:  # fmt: skip
        """`ids` gives chance of another kind than the seed's, which one thread at a time may draw from."""
        self.clock = VirtualClock()
        self.store = store or MemoryStore()
        self.mail = Mail()
        catalog = Catalog(self.store, self.clock)
        drawn = ids(self.clock) if ids is not None else SeededIds(self.clock, next(_SEEDS) if seed is None else seed)
        self.sealer = sealer or MemorySealer()
        self.staging = MemoryStaging()
        self.variables: dict[str, str] = {}
        """The process's own, of which a pool may name some."""
        self.vaults = vaults
        self.receivers = Receivers(self.clock)
        self.backends = self.new_backends(catalog)
        self.core = Core(
            self.store,
            self.clock,
            drawn,
            self.mail,
            catalog,
            self.backends,
            tuning=tuning or Tuning(),
            sealer=self.sealer,
            staging=self.staging,
            courier=self.receivers,
        )
        self.peppers = keys.Peppers({1: b"p" * 32})
        tenants.bootstrap(self.core)
        self.operator = tenants.first_operator_key(self.core, self.peppers).token
        self.app = App(self.core, self.peppers, version="1.2.3")
        self._requests = 0

    def seal(self) -> None:
        """Give everything that is in the log its place in its chain, as the sealer does."""
        for org in comparing.organizations(self.core):
            after: str | None = None
            while True:
                page = self.store.query(Table.LOG, Event.key_of(org, "").pk, after=after)
                sealing.seal(self.core, org, (row for row in page.rows if isinstance(row, Event)))
                if page.next is None:
                    break
                after = page.next

    def new_backends(self, catalog: Catalog) -> PoolAdapters:
        """The adapters of one process, with nothing built yet."""
        read = PoolCredentials(
            self.store, self.sealer, lambda: catalog.installation().id, environment=self.variables, vaults=self.vaults
        )
        return PoolAdapters(self.clock, lambda: catalog.installation().id, credentials=read, dev=True)

    # The world behind the API.

    def tenant(self, name: str = "acme", org: str | None = None) -> Tenant:
        """A project with a key of its own, in a new organization or in `org`."""
        owner = org or tenants.create_org(self.core, BOOT, name).id
        project = tenants.create_project(self.core, BOOT, owner, f"{name}-project")  # type: ignore[arg-type]
        made = keys.create_key(
            self.core, self.peppers, BOOT, name, KeyScope.TENANT, org=project.org, project=project.id
        )
        return Tenant(owner, project.id, made.token)

    def pool(self, name: str = "main", max_concurrency: int = 100, **body: Any) -> FakeBackend:
        body = {"name": name, "adapter": "fake", "maxConcurrency": max_concurrency, **body}
        reply = self.call("POST", "/v1/admin/pools", body, token=self.operator)
        assert reply.status == 201, reply.raw
        return self.backend(name)

    def backend(self, pool: str) -> FakeBackend:
        adapter = self.backends.adapter(pools.detail(self.core, pool).pool)
        assert isinstance(adapter, FakeAdapter)
        return adapter.backend

    def probe(self) -> None:
        """Look at every pool, as each tick does."""
        pools.probe_all(self.core)

    def settle(self) -> None:
        """Deliver every message, and those that follow from them."""
        for _ in range(STEPS_MAX):
            if not self.mail.messages:
                return
            self.deliver_one(*self.mail.messages.popleft())
        raise AssertionError(f"still busy after {STEPS_MAX} messages")

    def deliver_one(self, kind: str, name: str, number: int) -> None:
        match kind:
            case "worker":
                worker.step(self.core, SandboxId(name))
            case "closing":
                closing.step(self.core, name)
            case "deliver":
                delivering.step(self.core, WebhookId(name))
            case "reconcile":
                reconcile.reconcile(self.core, name)
            case "cleanup":
                cleanup.settle(self.core, SandboxId(name), number)
            case "port":
                ports.step(self.core, SandboxId(name), number)
            case "snapshot":
                capturing.step(self.core, SnapshotId(name))
            case _:
                dispatch.dispatch(self.core)

    def pass_time(self, seconds: float) -> None:
        """Move the clock, then let the sweep find what is due."""
        self.clock.advance(seconds)
        sweep.sweep(self.core)
        self.settle()

    # The gateway in front of it.

    def event(
        self, method: str, target: str, body: Any = None, *, token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The proxy event of a call; bytes are sent as a binary body, anything else as JSON."""
        self._requests += 1
        parts = urlsplit(target)
        query: dict[str, list[str]] = {}
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            query.setdefault(name, []).append(value)
        is_binary = isinstance(body, bytes)
        text = None if body is None else base64.b64encode(body).decode() if is_binary else (
            body if isinstance(body, str) else json.dumps(body)
        )  # fmt: skip
        authorization = {"Authorization": f"Bearer {token}"} if token is not None else {}
        return {
            "resource": "/{proxy+}", "path": parts.path, "httpMethod": method,
            "headers": {**authorization, **(headers or {})},
            "multiValueHeaders": {},
            "queryStringParameters": {name: values[-1] for name, values in query.items()} or None,
            "multiValueQueryStringParameters": query or None,
            "pathParameters": {"proxy": parts.path.strip("/")}, "stageVariables": None,
            "requestContext": {"requestId": f"request-{self._requests}", "stage": "v1", "httpMethod": method},
            "body": text, "isBase64Encoded": is_binary,
        }  # fmt: skip

    def call(
        self, method: str, target: str, body: Any = None, *, token: str | None = None,
        headers: Mapping[str, str] | None = None, context: object = None,
    ) -> Reply:  # fmt: skip
        """One call through authorizer and handler, as the gateway makes it."""
        return self.deliver(self.event(method, target, body, token=token, headers=headers), context)

    def deliver(self, event: dict[str, Any], context: object = None) -> Reply:
        route = self.app.route(event["httpMethod"], event["path"])
        if route is not None and route.access is not Access.PUBLIC:
            request = {**event, "type": "REQUEST", "methodArn": f"{STAGE}/{event['httpMethod']}{event['path']}"}
            try:
                allowed = self.app.authorizer(request)
            except Exception as refusal:
                if str(refusal) != "Unauthorized":
                    raise
                return reply_of(self.app.refused(event))
            context_of_key = {**allowed["context"], "principalId": allowed["principalId"]}
            event = {**event, "requestContext": {**event["requestContext"], "authorizer": context_of_key}}
        return reply_of(self.app.serve(event, context))

    def running(self, tenant: Tenant, body: Mapping[str, Any] | None = None) -> str:
        """The id of a fresh running sandbox."""
        made = self.call("POST", "/v1/sandboxes", body or {}, token=tenant.token)
        assert made.status == 202, made.raw
        identity = str(made.json()["id"])
        self.settle()
        found = self.call("GET", f"/v1/sandboxes/{identity}", token=tenant.token).json()
        assert found["status"] == "running", found
        return identity


def reply_of(answer: dict[str, Any]) -> Reply:
    body, headers = answer["body"], answer["headers"]
    if isinstance(body, str):
        raw = base64.b64decode(body) if answer["isBase64Encoded"] else body.encode()
        return Reply(answer["statusCode"], headers, _Replayable([raw]), streamed=False)
    return Reply(answer["statusCode"], headers, body, streamed=True)


class _Replayable(Iterator[bytes]):
    """A buffered body may be read more than once."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks
        self._next = iter(chunks)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._chunks)

    def __next__(self) -> bytes:
        return next(self._next)
