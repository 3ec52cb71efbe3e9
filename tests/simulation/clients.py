"""The users and operators of a simulated installation: what they ask for, and what they may conclude from an answer.

A call is an operation in a process of its own. What its answer promised is checked when it arrives, against what the
monitor saw of the rows while the call was under way.
"""

from __future__ import annotations

import random
from collections import Counter as Tally
from collections.abc import Callable
from dataclasses import dataclass, field

from differently_core.errors import BackendError, DifferentlyError, IdempotencyConflict, Internal
from differently_core.model.exec import ExecRequest
from differently_core.model.idempotency import IdempotencyRow
from differently_core.model.pool import PoolState
from differently_core.model.quota import Limits
from differently_core.model.resources import Size
from differently_core.model.sandbox import AT_REST, BACK, GONE, WAYS, MoveKind, Sandbox, Status
from differently_core.model.snapshot import SnapshotKind
from differently_core.operations import execution, forking, moves, pools, ports, sandboxes, snapshots, tenants, use
from differently_core.operations.core import Caller, Core
from differently_core.operations.create import Created, create
from differently_core.operations.forking import ForkSandbox
from differently_core.operations.requests import CreateSandbox, UpdateSandbox
from differently_core.operations.snapshots import TakeSnapshot
from differently_core.runtime.ids import ProjectId, SandboxId, keyed_bytes
from tests.support.world import OPERATOR

from .monitor import Monitor, must
from .processes import Process

KEYS = 6
"""So few that they are used again all the time."""
REMEMBERED_MAX = 40


@dataclass
class Client:
    """One API key, and what its owner remembers."""

    caller: Caller
    sandboxes: list[str] = field(default_factory=list)
    snapshots: list[str] = field(default_factory=list)
    sent: dict[str, CreateSandbox] = field(default_factory=dict)
    """The last body sent with each Idempotency-Key."""

    def learn(self, sandbox: str) -> None:
        if sandbox not in self.sandboxes:
            self.sandboxes = [*self.sandboxes[-REMEMBERED_MAX:], sandbox]


class Calls:
    """Makes calls: each method draws one and gives its name and what a process is to run."""

    def __init__(
        self, rng: random.Random, clients: list[Client], pool_names: list[str], roominess: int, monitor: Monitor,
        tally: Tally[str],
    ) -> None:  # fmt: skip
        self._rng = rng
        self._roominess = roominess
        self._clients = clients
        self._pools = pool_names
        self._monitor = monitor
        self._tally = tally
        self.ttls: tuple[int, ...] = (1, 2, 5, 10, 30, 120, 900, 3600, 7200, 0)
        self.patient = rng.random() < 0.5
        """Its sandboxes live long, often confined, and are put to rest and woken rather than deleted."""
        if self.patient:
            self.ttls = (900, 3600, 7200, 0)

    def create(self, core: Core) -> Job:
        client = self._rng.choice(self._clients)
        key = f"key-{self._rng.randrange(KEYS)}" if self._rng.random() < 0.4 else None
        body = self._body(client)
        if key is not None:
            if key in client.sent and self._rng.random() < 0.6:
                body = client.sent[key]
            client.sent[key] = body
        return Job("create", lambda: self._create(core, client, body, key))

    def update(self, core: Core) -> Job:
        client, sandbox = self._known()
        change = UpdateSandbox(
            ttl_seconds=self._rng.choice((None, 1, 10, 60, 600, 7200)),
            labels=self._rng.choice((None, {}, {"n": str(self._rng.randrange(100))})),
            idle_timeout_seconds=self._rng.choice((None, None, 0, 10, 60)),
        )
        return Job("update", lambda: self._update(core, client, sandbox, change))

    def delete(self, core: Core) -> Job:
        client, sandbox = self._known()
        caller = client.caller if self._rng.random() < 0.9 else OPERATOR
        return Job("delete", lambda: self._delete(core, caller, sandbox))

    def get(self, core: Core) -> Job:
        client, sandbox = self._known()
        return Job("get", lambda: self._get(core, client, sandbox))

    def listing(self, core: Core) -> Job:
        client = self._rng.choice(self._clients)
        query = sandboxes.ListQuery(ended=self._rng.random() < 0.3, limit=self._rng.choice((1, 3, 50)))
        return Job("list", lambda: self._list(core, client, query))

    def execute(self, core: Core) -> Job:
        client, sandbox = self._known()
        return Job("exec", lambda: self._execute(core, client, sandbox))

    def move(self, core: Core) -> Job:
        client, sandbox = self._resting() if self._rng.random() < 0.6 else self._running()
        row = self._monitor.rows.get(Sandbox.key_of(SandboxId(sandbox)))
        fitting: list[MoveKind] = []
        if isinstance(row, Sandbox):
            fitting = [kind for kind, way in WAYS.items() if way.before is row.status]
            fitting += [BACK[row.move.kind]] if row.move is not None and row.move.kind in BACK else []
        kind = self._rng.choice(fitting if fitting and self._rng.random() < 0.8 else tuple(MoveKind))
        return Job(kind.value, lambda: self._move(core, client, sandbox, kind))

    def snapshot(self, core: Core) -> Job:
        client, sandbox = self._running()
        kind = self._rng.choice((SnapshotKind.DISK, SnapshotKind.DISK, SnapshotKind.MEMORY))
        request = TakeSnapshot(kind=kind, retention_seconds=self._rng.choice((3600, 86_400)))
        key = f"snapshot-{self._rng.randrange(KEYS)}" if self._rng.random() < 0.3 else None
        return Job("snapshot", lambda: self._snapshot(core, client, sandbox, request, key))

    def delete_snapshot(self, core: Core) -> Job | None:
        client = self._rng.choice(self._clients)
        if not client.snapshots:
            return None
        snapshot = self._rng.choice(client.snapshots)
        return Job("delete_snapshot", lambda: self.answered(lambda: snapshots.delete(core, client.caller, snapshot)))

    def fork(self, core: Core) -> Job:
        client, sandbox = self._running()
        key = f"fork-{self._rng.randrange(KEYS)}" if self._rng.random() < 0.4 else None
        asked: dict[str, object] = {"ttl_seconds": self._rng.choice(self.ttls)}
        if self._rng.random() < 0.3:
            asked["env"] = {"SECRET": str(self._rng.randrange(100))}
        request = ForkSandbox.model_validate(asked)
        return Job("fork", lambda: self._fork(core, client, sandbox, request, key))

    def expose(self, core: Core) -> Job:
        client, sandbox = self._running()
        port, seconds = self._rng.choice((80, 3000)), self._rng.choice((60, 3600))
        return Job("expose", lambda: self._called(lambda: ports.expose(core, client.caller, sandbox, port, seconds)))

    def close_port(self, core: Core) -> Job:
        client, sandbox = self._running()
        port = self._rng.choice((80, 3000))
        return Job("close_port", lambda: self._called(lambda: ports.close(core, client.caller, sandbox, port)))

    def keep_alive(self, core: Core) -> Job:
        client, sandbox = self._known()
        return Job("keep_alive", lambda: self.answered(lambda: use.keep_alive(core, client.caller, sandbox)))

    def quota(self, core: Core) -> Job:
        caller = self._rng.choice(self._clients).caller
        assert caller.org is not None
        org, project = caller.org, caller.project if self._rng.random() < 0.5 else None
        limits = drawn_limits(self._rng, self._roominess)
        return Job("set_quota", lambda: self.answered(lambda: tenants.set_quota(core, OPERATOR, org, project, limits)))

    def drain(self, core: Core) -> Job:
        pool = self._rng.choice(self._pools)
        state = self._rng.choice((PoolState.ACTIVE, PoolState.ACTIVE, PoolState.ACTIVE, PoolState.DRAINING))
        return Job("drain", lambda: self.answered(lambda: pools.set_state(core, OPERATOR, pool, state)))

    def _known(self) -> tuple[Client, str]:
        client = self._rng.choice(self._clients)
        if not client.sandboxes or self._rng.random() < 0.02:
            return client, "sbx_00000000000000000000000000"
        return client, self._rng.choice(client.sandboxes)

    def _resting(self) -> tuple[Client, str]:
        """One that is stopped, paused or on its way there, if anybody has one: few wake by chance."""
        rows = [
            (client, row.id)
            for client in self._clients
            for known in client.sandboxes
            if isinstance(row := self._monitor.rows.get(Sandbox.key_of(SandboxId(known))), Sandbox)
            and row.status in AT_REST | {Status.PAUSING, Status.STOPPING}
        ]
        return self._rng.choice(rows) if rows else self._known()

    def _running(self) -> tuple[Client, str]:
        """Mostly one that runs, or rests."""
        client, sandbox = self._known()
        rows = (self._monitor.rows.get(Sandbox.key_of(SandboxId(known))) for known in client.sandboxes)
        fitting = [
            row.id for row in rows if isinstance(row, Sandbox) and row.status in (Status.RUNNING, Status.STOPPED)
        ]
        return client, self._rng.choice(fitting) if fitting and self._rng.random() < 0.8 else sandbox

    def _body(self, client: Client) -> CreateSandbox:
        rng = self._rng
        asked: dict[str, object] = {"ttl_seconds": rng.choice(self.ttls), "priority": rng.choice((0, 0, 0, 5, 9))}
        asked["idle_timeout_seconds"] = rng.choice((None, None, 10, 60, 600))
        asked["preemptible"] = rng.random() < 0.3
        asked["max_run_seconds"] = rng.choice((None, None, None, 30, 300))
        patience = (None, None, None, 600, 7200) if self.patient else (None, None, None, 0, 5, 60, 600, 7200)
        asked["queue_timeout_seconds"] = rng.choice(patience)
        if rng.random() < 0.3:
            asked["labels"] = {"n": str(rng.randrange(100))}
        if rng.random() < 0.3:
            asked["env"] = {"SECRET": str(rng.randrange(100))}
        if rng.random() < 0.3:
            asked["resources"] = {"cpu": rng.choice((0.5, 1, 2, 4)), "memory_mib": rng.choice((256, 1024, 4096))}
        if rng.random() < (0.8 if self.patient else 0.3):
            asked["egress"] = {"allow": ["example.com"]}
        if rng.random() < 0.15:
            asked["placement"] = {"allowed_pools": rng.sample(self._pools, rng.randint(1, len(self._pools)))}
        if rng.random() < 0.1:
            asked["capabilities"] = [rng.choice(("exec", "exec", "gpu"))]
        if client.snapshots and rng.random() < 0.2:
            asked["snapshot_id"] = rng.choice(client.snapshots)
        if rng.random() < 0.1:
            asked["template"] = rng.choice(("default", "picky", "picky", "nowhere"))
        return CreateSandbox.model_validate(asked)

    # The calls themselves, in their processes.

    def answered(self, call: Callable[[], object]) -> None:
        """Errors of the tree are answers; `Internal` is never one."""
        try:
            call()
        except Internal as error:
            must(False, "errors", f"a caller was shown {error.code}: {error.message}")
        except DifferentlyError as error:
            self._tally[f"answer {error.code}"] += 1
        else:
            self._tally["answer ok"] += 1

    def _create(self, core: Core, client: Client, body: CreateSandbox, key: str | None) -> None:
        began = self._monitor.commits
        process = self._process()

        def call() -> None:
            try:
                created = create(core, client.caller, body, key)
            except IdempotencyConflict as error:
                must(not process.creates, "I8", "a conflict had a side effect")
                self._judge_key(core, client, key, began, lambda row: row.digest != body.digest())
                client.learn(str(error.details["sandboxId"]))
                raise
            self._judge_created(core, client, body, key, created, began)

        self.answered(call)

    def _judge_created(
        self, core: Core, client: Client, body: CreateSandbox, key: str | None, created: Created, began: int
    ) -> None:
        process = self._process()
        self._tally["answer replayed" if created.replayed else "answer created"] += 1
        client.learn(created.sandbox)
        if created.replayed:
            must(not process.creates, "I8", f"a replay made {process.creates}")
            self._judge_key(
                core, client, key, began, lambda row: row.sandbox == created.sandbox and row.digest == body.digest()
            )
        else:
            must(process.creates == [created.sandbox], "I8", f"a create of {created.sandbox} made {process.creates}")

    def _judge_key(
        self, core: Core, client: Client, key: str | None, began: int, fits: Callable[[IdempotencyRow], bool]
    ) -> None:
        """The answer tells of a row that was there at some moment of the call."""
        assert key is not None
        assert client.caller.project is not None
        salt = core.catalog.installation().id_salt.encode()
        bits = keyed_bytes(salt, client.caller.project, key)
        row_key = IdempotencyRow.key_of(SandboxId(core.ids.new("sbx", bits)))
        seen = self._monitor.idempotency_seen[row_key]
        first = max((at for at, _ in seen if at <= began), default=0)
        rows = [row for at, row in seen if at >= first and row is not None]
        must(any(fits(row) for row in rows), "I8", f"the answer for {key} tells of none of {rows}")

    def _update(self, core: Core, client: Client, sandbox: str, change: UpdateSandbox) -> None:
        def call() -> None:
            after = sandboxes.update(core, client.caller, sandbox, change)
            must(change.labels is None or after.labels == change.labels, "I7", "an answer without the labels asked for")
            asked = change.ttl_seconds
            must(asked is None or after.ttl_seconds == asked, "I14", "an answer without the lifetime asked for")

        self.answered(call)

    def _delete(self, core: Core, caller: Caller, sandbox: str) -> None:
        def call() -> None:
            answer = sandboxes.delete(core, caller, sandbox)
            must(answer.status in GONE, "I6", f"a delete was answered {answer.status}")
            must(self._stored(sandbox).status in GONE, "I6", f"{sandbox} is alive after its delete was answered")

        self.answered(call)

    def _get(self, core: Core, client: Client, sandbox: str) -> None:
        def call() -> None:
            found = sandboxes.view(client.caller, sandboxes.find(core, client.caller, sandbox))
            must(found.project == client.caller.project, "I11", f"{sandbox} of another project was shown")

        self.answered(call)

    def _list(self, core: Core, client: Client, query: sandboxes.ListQuery) -> None:
        def call() -> None:
            shown = sandboxes.list_sandboxes(core, client.caller, query)
            for found in shown.items:
                must(found.project == client.caller.project, "I11", f"{found.id} of another project was listed")
                must(query.ended or found.status not in GONE, "list", f"{found.id} is gone and was listed")

        self.answered(call)

    def _execute(self, core: Core, client: Client, sandbox: str) -> None:
        def call() -> None:
            result = execution.run(core, client.caller, sandbox, ExecRequest(command="whoami", timeout_seconds=5))
            ours = f"{sandbox} {self._stored(sandbox).backend_ref}".encode()
            must(result.stdout == ours, "I1", f"a command for {ours!r} ran in {result.stdout!r}")

        try:
            self.answered(call)
        except BackendError:
            self._tally["answer backend_error"] += 1

    def _move(self, core: Core, client: Client, sandbox: str, kind: MoveKind) -> None:
        def call() -> None:
            answer = moves.ask(core, client.caller, sandbox, kind)
            fits = {WAYS[kind].after, WAYS[kind].during}
            if WAYS[kind].wakes:  # it may wait for room, or for the end of the way to rest that it is on
                fits |= {Status.QUEUED, *(WAYS[back].during for back, woken in BACK.items() if woken is kind)}
            must(answer.status in fits, "I7", f"a {kind} was answered {answer.status}")

        try:
            self.answered(call)
        except BackendError:
            self._tally["answer backend_error"] += 1

    def _called(self, call: Callable[[], object]) -> None:
        """A call that reaches the backend itself."""
        try:
            self.answered(call)
        except BackendError:
            self._tally["answer backend_error"] += 1

    def _snapshot(self, core: Core, client: Client, sandbox: str, request: TakeSnapshot, key: str | None) -> None:
        def call() -> None:
            taken = snapshots.take(core, client.caller, sandbox, request, key)
            client.snapshots = [*client.snapshots[-REMEMBERED_MAX:], taken.snapshot]

        self.answered(call)

    def _fork(self, core: Core, client: Client, sandbox: str, request: ForkSandbox, key: str | None) -> None:
        process = self._process()

        def call() -> None:
            try:
                made = forking.fork(core, client.caller, sandbox, request, key)
            except IdempotencyConflict as error:
                must(not process.creates, "I8", "a conflict had a side effect")
                client.learn(str(error.details["sandboxId"]))
                raise
            client.learn(made.sandbox)
            wanted = [] if made.replayed else [made.sandbox]
            must(process.creates == wanted, "I8", f"a fork of {made.sandbox} made {process.creates}")

        self.answered(call)

    def _stored(self, sandbox: str) -> Sandbox:
        found = self._monitor.rows[Sandbox.key_of(SandboxId(sandbox))]
        assert isinstance(found, Sandbox)
        return found

    def _process(self) -> Process:
        process = self._monitor.process()
        assert process is not None
        return process


@dataclass(frozen=True)
class Job:
    name: str
    run: Callable[[], None]


BACKLOGS = (None, None, 0, 2, 10)
"""Chosen without a draw, so that what else a seed means stays as it was."""


def drawn_limits(rng: random.Random, roominess: int) -> Limits:
    """Now and then a limit of another resource than the count; a roomy world sets none that is felt."""
    total = Size(
        sandboxes=rng.choice((1, 2, 3, 5, 8)) * roominess,
        cpu_millis=rng.choice((10**12, 10**12, 4000 * roominess)),
        memory_mib=rng.choice((10**12, 10**12, 4096 * roominess)),
        disk_gib=10**12,
    )
    return Limits(
        total=total, queued_max=rng.choice((2, 10, 10_000)), ttl_seconds_max=rng.choice((3600, 604_800)),
        snapshots_max=rng.choice((0, 1, 5, 100, 100)), backlog_max=BACKLOGS[rng.getstate()[1][0] % len(BACKLOGS)],
    )  # fmt: skip


def project_of(caller: Caller) -> ProjectId:
    return caller.tenant_project()
