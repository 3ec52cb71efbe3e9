"""Fixtures of the suite: first those that an adapter gives or may change, then those that the suite relies on."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

import pytest

from differently_core.contract import Adapter, CommandResult, CreateRequest, Operation, Owner, Target, supports
from differently_core.errors import DifferentlyError
from differently_core.model.exec import ExecRequest
from differently_core.model.resources import Size
from differently_core.runtime.clock import Clock, SystemClock
from differently_core.runtime.ids import SystemIds

from .backend import BackendUnderTest, CannotHappen, Mishap

Run = Callable[..., CommandResult]
Make = Callable[..., CreateRequest]
Until = Callable[[Callable[[], bool]], None]
Arrange = Callable[[Mishap], None]
Asked = Callable[[Operation], int]

WAITS_MAX = 2_000
OUTPUT_BYTES = 1_048_576
CREATE_SECONDS = 120.0
MOVE_SECONDS = 60.0
SNAPSHOT_SECONDS = 300.0


def a_create_request(owner: Owner, env: Mapping[str, str] | None = None) -> CreateRequest:
    """For backends that make an instance without the adapter under test."""
    return CreateRequest(
        owner=owner,
        org="org_conformance",
        project="prj_conformance",
        template="base",
        image=None,
        size=Size(sandboxes=1, cpu_millis=1000, memory_mib=512, disk_gib=1),
        ttl_seconds=3600,
        labels={"team": "conformance"},
        env=env or {},
    )


class AdapterFixtures:
    """Yours: `kind`, `backend` and `adapter` must be given, the rest may be changed."""

    kind: ClassVar[str]
    template: ClassVar[str] = "base"
    image: ClassVar[str | None] = None
    folder: ClassVar[str] = "conformance"
    """Where the suite keeps its files in a sandbox; it need not exist."""
    secrets: ClassVar[tuple[str, ...]] = ()
    """Credentials that the adapter was built with. No error may tell one."""

    @pytest.fixture
    def backend(self) -> BackendUnderTest:
        raise NotImplementedError("give the fixture `backend`: the system behind the adapter, a BackendUnderTest")

    @pytest.fixture
    def adapter(self, backend: BackendUnderTest) -> Adapter:
        raise NotImplementedError("give the fixture `adapter`: an adapter over `backend`")

    @pytest.fixture
    def restarted(self, adapter: Adapter) -> Adapter:
        """A second client of the same backend, which knows nothing of the first."""
        return adapter

    @pytest.fixture
    def clock(self) -> Clock:
        """The clock that the backend lives by."""
        return SystemClock()

    @pytest.fixture
    def pause(self) -> Callable[[], None]:
        """Let a little time pass while the suite waits for a condition."""
        clock = SystemClock()
        return lambda: clock.sleep(0.01)


class SuiteFixtures(AdapterFixtures):
    """The suite's own; leave them as they are."""

    @pytest.fixture
    def ids(self) -> SystemIds:
        return SystemIds(SystemClock())

    @pytest.fixture
    def installation(self, ids: SystemIds) -> str:
        return ids.new("inst")

    @pytest.fixture
    def other_installation(self, ids: SystemIds) -> str:
        return ids.new("inst")

    @pytest.fixture
    def new_owner(self, ids: SystemIds, installation: str) -> Callable[[], Owner]:
        return lambda: Owner(installation, ids.new("sbx"))

    @pytest.fixture
    def owner(self, new_owner: Callable[[], Owner]) -> Owner:
        return new_owner()

    @pytest.fixture
    def make(self) -> Make:
        """A create request for an owner."""

        def make(owner: Owner, env: Mapping[str, str] | None = None) -> CreateRequest:
            request = a_create_request(owner, env)
            return replace(request, template=self.template, image=self.image)

        return make

    @pytest.fixture
    def arrange(self, backend: BackendUnderTest) -> Arrange:
        """Let a mishap come, or skip the test because this backend does not know it."""

        def arrange(mishap: Mishap) -> None:
            try:
                backend.arrange(mishap)
            except CannotHappen as why:
                pytest.skip(f"{self.kind}: it cannot be that {mishap}: {why}")

        return arrange

    @pytest.fixture
    def asked(self, backend: BackendUnderTest) -> Asked:
        """How often the backend was asked for an operation, or skip the test because nobody counts."""

        def asked(operation: Operation) -> int:
            try:
                return backend.requests(operation)
            except CannotHappen as why:
                pytest.skip(f"{self.kind}: requests cannot be counted: {why}")

        return asked

    @pytest.fixture
    def until(self, pause: Callable[[], None]) -> Until:
        def until(condition: Callable[[], bool]) -> None:
            for _ in range(WAITS_MAX):
                if condition():
                    return
                pause()
            pytest.fail("waited too long for a condition")

        return until

    @pytest.fixture
    def sandbox(
        self, adapter: Adapter, backend: BackendUnderTest, owner: Owner, make: Make, until: Until
    ) -> Iterator[Target]:
        """A running sandbox."""
        instance = adapter.create(make(owner, {"FROM_CREATE": "yes", "BOTH": "create"}), CREATE_SECONDS)
        target = Target(owner, instance.ref)
        until(lambda: adapter.get(target).state == "running")
        yield target
        backend.come_up()
        with contextlib.suppress(DifferentlyError):
            adapter.delete(target)

    @pytest.fixture
    def run(self, adapter: Adapter, sandbox: Target) -> Run:
        """Run a command in the sandbox; by default a shell line."""

        def run(command: str | None = None, *, keep: int = OUTPUT_BYTES, **request: object) -> CommandResult:
            return adapter.exec(sandbox, ExecRequest.model_validate({"command": command, **request}), keep)

        return run

    @pytest.fixture
    def job_ids(self) -> Iterator[str]:
        return (f"job-{number}" for number in itertools.count(1))


def needs(adapter: Adapter, *operations: Operation) -> None:
    """Skip, naming the first operation that the adapter declares unsupported."""
    for operation in operations:
        if not supports(adapter, operation):
            pytest.skip(f"{adapter.kind} declares {operation} {adapter.operations[operation]}")


def needs_idempotent_create(adapter: Adapter) -> None:
    if not adapter.info().idempotent_create:
        pytest.skip(f"{adapter.kind} declares idempotent_create=False")
