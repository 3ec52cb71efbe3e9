"""Snapshots: captured once for each operation, kept apart, and made into new instances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from differently_core.contract import (
    Adapter,
    InstanceState,
    Operation,
    Owner,
    SnapshotInfo,
    SnapshotKind,
    SnapshotRequest,
    SnapshotState,
    Target,
)
from differently_core.errors import (
    BackendError,
    InvalidRequest,
    InvalidState,
    NotFound,
    SandboxFailed,
    UnsupportedOperation,
)
from differently_core.model import features
from differently_core.model.exec import ExecRequest

from .backend import BackendUnderTest, Mishap
from .calls import unheard
from .fixtures import CREATE_SECONDS, MOVE_SECONDS, SNAPSHOT_SECONDS, Arrange, Make, Run, SuiteFixtures, Until, needs

Take = Callable[[str], SnapshotInfo]
Restore = Callable[..., Target]


class SnapshotTests(SuiteFixtures):
    @pytest.fixture(autouse=True)
    def _needs_snapshots(self, request: pytest.FixtureRequest) -> None:
        if request.function.__name__ in vars(SnapshotTests):
            needs(request.getfixturevalue("adapter"), Operation.SNAPSHOT)

    @pytest.fixture
    def kind_of_snapshot(self, adapter: Adapter) -> SnapshotKind:
        return SnapshotKind.DISK if features.SNAPSHOTS_DISK in adapter.capabilities().features else SnapshotKind.MEMORY

    @pytest.fixture
    def take(self, adapter: Adapter, sandbox: Target, kind_of_snapshot: SnapshotKind, until: Until) -> Take:
        """Take a snapshot and wait until it is no longer being made."""

        def take(operation: str) -> SnapshotInfo:
            taken = adapter.snapshot(sandbox, SnapshotRequest(kind_of_snapshot, operation), SNAPSHOT_SECONDS)
            until(lambda: adapter.snapshot_get(sandbox.owner, taken.ref).state is not SnapshotState.CREATING)
            return adapter.snapshot_get(sandbox.owner, taken.ref)

        return take

    @pytest.fixture
    def restore(self, adapter: Adapter, new_owner: Callable[[], Owner], make: Make, until: Until) -> Restore:
        """Make a new sandbox of a snapshot, and wait until it runs."""

        def restore(ref: str, owner: Owner | None = None) -> Target:
            owner = owner or new_owner()
            created = adapter.create(replace(make(owner), from_snapshot=ref), CREATE_SECONDS)
            target = Target(owner, created.ref)
            until(lambda: adapter.get(target).state is InstanceState.RUNNING)
            return target

        return restore

    def test_a_new_sandbox_starts_from_what_was_captured(
        self, adapter: Adapter, sandbox: Target, run: Run, take: Take, restore: Restore
    ) -> None:
        run("mkdir -p a/b; echo first > a/b/file")
        taken = take("op-1")
        assert (taken.state, taken.owner) == (SnapshotState.READY, sandbox.owner)
        assert taken.size_bytes is None or taken.size_bytes >= 0
        self._wake(adapter, sandbox)
        run("echo second > a/b/file")
        child = restore(taken.ref)
        assert child.ref != sandbox.ref
        assert _cat(adapter, child, "a/b/file") == b"first\n"
        assert _cat(adapter, sandbox, "a/b/file") == b"second\n"

    def test_a_restored_sandbox_is_its_own_owners_alone(
        self, adapter: Adapter, backend: BackendUnderTest, sandbox: Target, take: Take, restore: Restore
    ) -> None:
        child = restore(take("op-1").ref)
        listed = {instance.owner: instance.ref for instance in adapter.list(sandbox.owner.installation)}
        assert listed == {sandbox.owner: sandbox.ref, child.owner: child.ref}
        with pytest.raises(NotFound):
            adapter.get(Target(sandbox.owner, child.ref))
        adapter.delete(Target(child.owner))
        assert adapter.get(Target(sandbox.owner)).ref == sandbox.ref
        assert backend.count() == 1

    def test_a_snapshot_outlives_its_sandbox(
        self, adapter: Adapter, sandbox: Target, run: Run, take: Take, restore: Restore
    ) -> None:
        run("echo kept > kept")
        taken = take("op-1")
        adapter.delete(sandbox)
        assert _cat(adapter, restore(taken.ref), "kept") == b"kept\n"

    def test_one_operation_is_one_snapshot(
        self, adapter: Adapter, restarted: Adapter, backend: BackendUnderTest, sandbox: Target, take: Take
    ) -> None:
        first = take("op-1")
        again = restarted.snapshot(sandbox, SnapshotRequest(first.kind, "op-1"), SNAPSHOT_SECONDS)
        assert again.ref == first.ref
        assert backend.snapshots() == 1
        self._wake(adapter, sandbox)
        assert take("op-2").ref != first.ref
        assert backend.snapshots() == 2

    def test_a_snapshot_whose_answer_was_lost_is_found_by_its_operation(
        self, adapter: Adapter, backend: BackendUnderTest, sandbox: Target, kind_of_snapshot: SnapshotKind, take: Take
    ) -> None:
        request = SnapshotRequest(kind_of_snapshot, "op-1")
        backend.lose_answer(Operation.SNAPSHOT)
        unheard(lambda: adapter.snapshot(sandbox, request, SNAPSHOT_SECONDS))
        assert take("op-1").state is SnapshotState.READY
        assert backend.snapshots() == 1

    def test_the_source_goes_on_unless_it_is_said_to_stop(self, adapter: Adapter, sandbox: Target, take: Take) -> None:
        take("op-1")
        stops = adapter.capabilities().snapshot_stops
        assert adapter.get(sandbox).state is (InstanceState.STOPPED if stops else InstanceState.RUNNING)

    def test_memory_is_captured_only_where_it_is_offered(self, adapter: Adapter, sandbox: Target) -> None:
        request = SnapshotRequest(SnapshotKind.MEMORY, "op-1")
        if features.SNAPSHOTS_MEMORY in adapter.capabilities().features:
            assert adapter.snapshot(sandbox, request, SNAPSHOT_SECONDS).kind is SnapshotKind.MEMORY
            return
        with pytest.raises(UnsupportedOperation):
            adapter.snapshot(sandbox, request, SNAPSHOT_SECONDS)

    def test_a_snapshot_is_its_owners(
        self,
        adapter: Adapter,
        backend: BackendUnderTest,
        sandbox: Target,
        new_owner: Callable[[], Owner],
        other_installation: str,
        make: Make,
        take: Take,
    ) -> None:
        taken = take("op-1")
        foreign = Owner(other_installation, sandbox.owner.sandbox)
        for stranger in (foreign, new_owner()):
            for call in (adapter.snapshot_get, adapter.snapshot_delete):
                with pytest.raises(NotFound):
                    call(stranger, taken.ref)
        with pytest.raises(NotFound):
            adapter.create(replace(make(foreign), from_snapshot=taken.ref), CREATE_SECONDS)
        assert (backend.snapshots(), backend.count()) == (1, 1)

    def test_a_deleted_snapshot_is_gone_and_deleting_it_again_succeeds(
        self, adapter: Adapter, restarted: Adapter, backend: BackendUnderTest, sandbox: Target, make: Make, take: Take,
        new_owner: Callable[[], Owner],
    ) -> None:  # fmt: skip
        taken = take("op-1")
        backend.lose_answer(Operation.SNAPSHOT_DELETE)
        unheard(lambda: adapter.snapshot_delete(sandbox.owner, taken.ref))
        for client in (adapter, restarted):
            client.snapshot_delete(sandbox.owner, taken.ref)
            with pytest.raises(NotFound):
                client.snapshot_get(sandbox.owner, taken.ref)
        with pytest.raises((NotFound, InvalidRequest)):
            adapter.create(replace(make(new_owner()), from_snapshot=taken.ref), CREATE_SECONDS)
        assert (backend.snapshots(), backend.count()) == (0, 1)

    def test_a_snapshot_that_fails_is_told_and_can_be_removed(
        self, adapter: Adapter, backend: BackendUnderTest, sandbox: Target, take: Take, arrange: Arrange
    ) -> None:
        arrange(Mishap.SNAPSHOT_FAILS)
        try:
            failed = take("op-1")
        except SandboxFailed:
            assert backend.snapshots() == 0
            return
        assert failed.state is SnapshotState.FAILED
        adapter.snapshot_delete(sandbox.owner, failed.ref)
        assert backend.snapshots() == 0

    def test_a_snapshot_that_cannot_be_restored_fails_the_new_sandbox_and_leaves_nothing(
        self,
        adapter: Adapter,
        backend: BackendUnderTest,
        new_owner: Callable[[], Owner],
        make: Make,
        take: Take,
        arrange: Arrange,
    ) -> None:
        taken = take("op-1")
        arrange(Mishap.RESTORE_FAILS)
        owner = new_owner()
        with pytest.raises((SandboxFailed, InvalidState)):
            adapter.create(replace(make(owner), from_snapshot=taken.ref), CREATE_SECONDS)
        adapter.delete(Target(owner))
        assert backend.count() == 1

    def test_an_outage_is_not_the_end_of_a_snapshot(
        self, adapter: Adapter, backend: BackendUnderTest, sandbox: Target, take: Take
    ) -> None:
        taken = take("op-1")
        backend.go_down()
        for call in (adapter.snapshot_get, adapter.snapshot_delete):
            with pytest.raises(BackendError):
                call(sandbox.owner, taken.ref)
        backend.come_up()
        assert adapter.snapshot_get(sandbox.owner, taken.ref).state is SnapshotState.READY

    def _wake(self, adapter: Adapter, sandbox: Target) -> None:
        if adapter.capabilities().snapshot_stops:
            adapter.start(sandbox, MOVE_SECONDS)


def _cat(adapter: Adapter, target: Target, path: str) -> bytes:
    return adapter.exec(target, ExecRequest(args=["cat", path]), 1_000).stdout
