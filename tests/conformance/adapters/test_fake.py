"""The fake under the suite that it stands in for, with a real shell behind its commands."""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import ClassVar, NoReturn

import pytest

from differently_adapters.jobs import ShellJobs
from differently_adapters.providers.fake import (
    Fail,
    FakeAdapter,
    FakeBackend,
    FakeInstance,
    Fault,
    Ignored,
    IgnoreFilter,
    Late,
    Linger,
    LoseAnswer,
    LosePage,
    OverlapPages,
    Refuse,
    RepeatCursor,
    Revert,
    Slow,
)
from differently_adapters.providers.fake.instances import FakeFile
from differently_adapters.testing import AdapterConformance, HostShell, Mishap
from differently_adapters.testing.files import ALL_FILES
from differently_core.contract import (
    Adapter,
    Capabilities,
    Catalog,
    CommandResult,
    Declaration,
    EgressRules,
    ExecEvent,
    Exposure,
    FileContent,
    Files,
    Instance,
    JobOutput,
    Observations,
    Operation,
    Owner,
    SnapshotInfo,
    SnapshotRequest,
    Target,
    Transition,
    Transitioned,
    Unsupported,
    unsupported,
)
from differently_core.errors import InsufficientCapacity, InvalidRequest
from differently_core.model import features
from differently_core.model.exec import ExecRequest, FileInfo, Job, Stream
from differently_core.runtime.clock import Clock, SystemClock, VirtualClock

SETTLES_SECONDS = 30.0
TOKEN = "canary-token-5d81"
COMMAND_SECONDS_MAX = 3.0
LEASE_SECONDS = 10**6
OUTPUT_BYTES_MAX = 32 * 1024 * 1024


class ShellBackend(FakeBackend):
    """A fake backend whose commands really run, in a directory that is brought in line with the instance's files.

    Commands run in real time and the backend lives in virtual time: one that is still running after a moment counts
    as one that would run for ever.
    """

    def __init__(self, root: Path, *, mirrors_files: bool = True) -> None:
        super().__init__(
            VirtualClock(), settles_seconds=SETTLES_SECONDS, page_size=2, token=TOKEN,
            exec_function=self._run, stream_function=self._stream,
        )  # fmt: skip
        self._mirrors_files = mirrors_files
        self._shell = HostShell(root, SystemClock(), COMMAND_SECONDS_MAX)
        self._patient = replace(self._shell, seconds_max=60.0)

    def _run(self, instance: FakeInstance, request: ExecRequest) -> CommandResult:
        forever = CommandResult(0, b"", b"", duration_ms=10**9)
        if re.fullmatch("sleep [0-9]+", request.command or ""):
            return forever
        self._mirror(instance, _to_disk)
        result = self._shell.run(instance.ref, instance.env, request, OUTPUT_BYTES_MAX)
        self._mirror(instance, _from_disk)
        return replace(result, duration_ms=forever.duration_ms) if result.timed_out else result

    def _stream(self, instance: FakeInstance, request: ExecRequest, quiet_seconds: float) -> Iterator[ExecEvent]:
        self._mirror(instance, _to_disk)
        return self._patient.stream(instance.ref, instance.env, request, quiet_seconds)

    def _mirror(self, instance: FakeInstance, how: Callable[[FakeInstance, Path], None]) -> None:
        home = self._shell.home(instance.ref)
        if self._mirrors_files:
            with self.lock:
                how(instance, home)


def _to_disk(instance: FakeInstance, home: Path) -> None:
    for folder in sorted(instance.folders):
        (home / folder).mkdir(parents=True, exist_ok=True)
    for name, file in instance.files.items():
        (home / name).write_bytes(file.data)


def _from_disk(instance: FakeInstance, home: Path) -> None:
    for path in home.rglob("*"):
        name = str(path.relative_to(home))
        if path.is_dir():
            instance.folders.add(name)
        else:
            instance.files[name] = FakeFile(path.read_bytes(), SystemClock().now())


ARRANGED: Mapping[Mishap, tuple[Operation, Fault]] = {
    Mishap.NO_ROOM: (Operation.CREATE, Refuse(InsufficientCapacity("full"))),
    Mishap.INSTANCE_FAILS: (Operation.CREATE, Fail()),
    Mishap.BOOTSTRAP_FAILS: (Operation.CREATE, Fail()),
    Mishap.REQUEST_REFUSED: (Operation.CREATE, Refuse(InvalidRequest("There is no such image."))),
    Mishap.DELETE_CONFLICTS: (Operation.DELETE, Linger(SETTLES_SECONDS, conflict=True)),
    Mishap.PAGE_LOST: (Operation.LIST, LosePage()),
    Mishap.CURSOR_REPEATED: (Operation.LIST, RepeatCursor()),
    Mishap.PAGES_OVERLAP: (Operation.LIST, OverlapPages()),
    Mishap.FILTER_IGNORED: (Operation.LIST, IgnoreFilter()),
    Mishap.PAUSE_HANGS: (Operation.PAUSE, Slow(SETTLES_SECONDS)),
    Mishap.PAUSE_REVERTS: (Operation.PAUSE, Revert()),
    Mishap.SNAPSHOT_FAILS: (Operation.SNAPSHOT, Revert()),
    Mishap.EGRESS_UNCONFIRMED: (Operation.EGRESS_SET, Ignored()),
}


class FakeUnderTest:
    def __init__(self, cloud: FakeBackend) -> None:
        self.cloud = cloud

    def count(self) -> int:
        return len(self.cloud.instances())

    def snapshots(self) -> int:
        return len(self.cloud.snapshots())

    def state_digest(self) -> str:
        kept = f"{self.cloud.instances()} {self.cloud.snapshots()}"
        return hashlib.sha256(kept.encode()).hexdigest()

    def requests(self, operation: Operation) -> int:
        return self.cloud.calls[operation]

    def lose_answer(self, operation: Operation) -> None:
        self.cloud.expect(operation, LoseAnswer())

    def delay_create(self) -> None:
        self.cloud.expect(Operation.CREATE, Late(SETTLES_SECONDS / 2))

    def settle(self) -> None:
        self.cloud.clock.sleep(SETTLES_SECONDS)

    @contextlib.contextmanager
    def losing_completions(self) -> Iterator[None]:
        self.cloud.plan = lambda _: LoseAnswer()
        yield
        self.cloud.plan = None

    def plant_foreign(self, ours: Owner, theirs: Owner) -> Target:
        return Target(ours, self.cloud.plant(theirs).ref)

    def break_list(self) -> None:
        self.cloud.expect(Operation.LIST, Refuse())

    def arrange(self, mishap: Mishap) -> None:
        match mishap:
            case Mishap.CREDENTIAL_REVOKED:
                self.cloud.token = "another one"
            case Mishap.RESTORE_FAILS:
                for snapshot in self.cloud.snapshots():
                    snapshot.broken = True
            case Mishap.FALLS_ASLEEP:
                for instance in self.cloud.instances():
                    self.cloud.fall_asleep(instance.ref)
            case _:
                operation, fault = ARRANGED[mishap]
                self.cloud.expect(operation, fault)

    def go_down(self) -> None:
        self.cloud.up = False

    def come_up(self) -> None:
        self.cloud.up = True
        self.cloud.token = TOKEN


class TestFake(AdapterConformance):
    kind = "fake"
    secrets = (TOKEN,)

    @pytest.fixture
    def backend(self, tmp_path: Path) -> FakeUnderTest:
        return FakeUnderTest(ShellBackend(tmp_path))

    @pytest.fixture
    def adapter(self, backend: FakeUnderTest) -> Adapter:
        return FakeAdapter.over(backend.cloud, credential={"token": TOKEN})

    @pytest.fixture
    def restarted(self, backend: FakeUnderTest) -> Adapter:
        return FakeAdapter.over(backend.cloud, credential={"token": TOKEN})

    @pytest.fixture
    def clock(self, backend: FakeUnderTest) -> Clock:
        return backend.cloud.clock

    @pytest.fixture
    def pause(self, backend: FakeUnderTest) -> Callable[[], None]:
        def pause() -> None:
            backend.cloud.clock.sleep(0.1)
            threading.Event().wait(0.002)  # and a moment of real time, for processes that are really ending

        return pause


class PlainAdapter(FakeAdapter):
    """A backend that runs a command and waits, and nothing else. Jobs come from the launcher in the shell."""

    operations: ClassVar[Declaration] = {
        **FakeAdapter.operations,
        Operation.EXEC_STREAM: Unsupported("no_streaming"),
        **dict.fromkeys(ALL_FILES, Unsupported("no_files")),
        Operation.RENEW: Unsupported("no_lease"),
        **dict.fromkeys((Operation.STOP, Operation.START), Unsupported("no_stop")),
        **dict.fromkeys((Operation.PAUSE, Operation.RESUME, Operation.CALL_OFF), Unsupported("no_pause")),
        **dict.fromkeys(
            (Operation.SNAPSHOT, Operation.SNAPSHOT_GET, Operation.SNAPSHOT_DELETE), Unsupported("no_snapshots")
        ),
        **dict.fromkeys((Operation.PORT_EXPOSE, Operation.PORT_REVOKE), Unsupported("no_ports")),
        Operation.EGRESS_SET: Unsupported("no_egress"),
        Operation.OBSERVE_MANY: Unsupported("one_by_one"),
        Operation.DISCOVER: Unsupported("nothing_to_choose_from"),
        Operation.VERIFY_CREDENTIAL: Unsupported("no_credential"),
    }

    def capabilities(self) -> Capabilities:
        return Capabilities(features=frozenset({features.EXEC}))

    def _refuse(self, operation: Operation) -> NoReturn:
        raise unsupported(self, operation, "plain")

    def _jobs(self) -> ShellJobs:
        return ShellJobs(self.exec, lambda _: "jobs of/this sandbox")

    def exec_stream(self, target: Target, request: ExecRequest, quiet_seconds: float) -> Iterator[ExecEvent]:
        self._refuse(Operation.EXEC_STREAM)

    def job_start(self, target: Target, job: str, request: ExecRequest) -> Job:
        return self._jobs().start(target, job, request)

    def job_status(self, target: Target, job: str) -> Job:
        return self._jobs().status(target, job)

    def job_output(self, target: Target, job: str, stream: Stream, offset: int, limit: int) -> JobOutput:
        return self._jobs().output(target, job, stream, offset, limit)

    def job_stop(self, target: Target, job: str) -> Job:
        return self._jobs().stop(target, job)

    def job_interrupt(self, target: Target, job: str) -> Job:
        return self._jobs().interrupt(target, job)

    def file_read(self, target: Target, path: str) -> FileContent:
        self._refuse(Operation.FILE_READ)

    def file_write(self, target: Target, path: str, data: Iterable[bytes]) -> FileInfo:
        self._refuse(Operation.FILE_WRITE)

    def file_list(self, target: Target, path: str) -> Files:
        self._refuse(Operation.FILE_LIST)

    def file_stat(self, target: Target, path: str) -> FileInfo:
        self._refuse(Operation.FILE_STAT)

    def file_delete(self, target: Target, path: str) -> None:
        self._refuse(Operation.FILE_DELETE)

    def renew(self, target: Target, until: datetime) -> datetime | None:
        self._refuse(Operation.RENEW)

    def stop(self, target: Target, deadline: float) -> Instance:
        self._refuse(Operation.STOP)

    def start(self, target: Target, deadline: float) -> Instance:
        self._refuse(Operation.START)

    def pause(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        self._refuse(Operation.PAUSE)

    def resume(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        self._refuse(Operation.RESUME)

    def call_off(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        self._refuse(Operation.CALL_OFF)

    def snapshot(self, target: Target, request: SnapshotRequest, deadline: float) -> SnapshotInfo:
        self._refuse(Operation.SNAPSHOT)

    def snapshot_get(self, owner: Owner, ref: str) -> SnapshotInfo:
        self._refuse(Operation.SNAPSHOT_GET)

    def snapshot_delete(self, owner: Owner, ref: str) -> None:
        self._refuse(Operation.SNAPSHOT_DELETE)

    def port_expose(self, target: Target, port: int, seconds: int) -> Exposure:
        self._refuse(Operation.PORT_EXPOSE)

    def port_revoke(self, target: Target, port: int) -> None:
        self._refuse(Operation.PORT_REVOKE)

    def egress_set(self, target: Target, rules: EgressRules) -> None:
        self._refuse(Operation.EGRESS_SET)

    def observe_many(self, targets: Sequence[Target]) -> Observations:
        self._refuse(Operation.OBSERVE_MANY)

    def discover(self) -> Catalog:
        self._refuse(Operation.DISCOVER)

    def verify_credential(self) -> None:
        self._refuse(Operation.VERIFY_CREDENTIAL)


class TestPlainExec(TestFake):
    """What an adapter gets from the suite when it declares little."""

    @pytest.fixture
    def backend(self, tmp_path: Path) -> FakeUnderTest:
        return FakeUnderTest(ShellBackend(tmp_path, mirrors_files=False))

    @pytest.fixture
    def adapter(self, backend: FakeUnderTest) -> Adapter:
        return PlainAdapter.over(backend.cloud, credential={"token": TOKEN})

    @pytest.fixture
    def restarted(self, backend: FakeUnderTest) -> Adapter:
        return PlainAdapter.over(backend.cloud, credential={"token": TOKEN})

    @pytest.fixture
    def pause(self) -> Callable[[], None]:
        return lambda: SystemClock().sleep(0.01)  # its jobs live in real time


class TestFakeLikeMostClouds(TestFake):
    """A repeated create makes a second instance, leases end, a pause is a checkpoint, and a snapshot stops."""

    @pytest.fixture
    def backend(self, tmp_path: Path) -> FakeUnderTest:
        cloud = ShellBackend(tmp_path)
        cloud.idempotent_create, cloud.resume_restores = False, True
        cloud.capabilities = replace(
            cloud.capabilities, snapshot_stops=True, lease_seconds=LEASE_SECONDS, max_lifetime_seconds=LEASE_SECONDS * 2
        )
        return FakeUnderTest(cloud)
