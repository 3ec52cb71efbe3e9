"""Adapters with one flaw each, under the suite that has to find it. `test_flawed` runs what each must fail."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import ClassVar

import pytest

from differently_adapters.providers.fake import FakeAdapter, Fault, snapshots
from differently_adapters.providers.fake.instances import FakeSnapshot
from differently_core.contract import (
    Adapter,
    Catalog,
    CreateRequest,
    Declaration,
    EgressRules,
    Exposure,
    Instance,
    Instances,
    InstanceState,
    Observations,
    Operation,
    Owner,
    Progress,
    SnapshotInfo,
    SnapshotRequest,
    Target,
    Transition,
    Transitioned,
    Unsupported,
)
from differently_core.errors import (
    BackendError,
    InsufficientCapacity,
    InvalidState,
    NotFound,
    ProviderUnavailable,
    SandboxFailed,
)
from differently_core.model.exec import Job
from tests.conformance.adapters.test_fake import TOKEN, FakeUnderTest
from tests.conformance.adapters.test_fake import TestFake as OverTheFake

FLAWS: dict[str, type[FakeAdapter]] = {}
"""By the name of the test that finds it."""


def found_by(test: str):
    def keep(flawed: type[FakeAdapter]) -> type[FakeAdapter]:
        FLAWS[test] = flawed
        return flawed

    return keep


@found_by("test_an_outage_is_not_the_end_of_a_snapshot")
class TakesAnOutageForAnEnd(FakeAdapter):
    def snapshot_get(self, owner: Owner, ref: str) -> SnapshotInfo:
        try:
            return super().snapshot_get(owner, ref)
        except ProviderUnavailable:
            raise NotFound("gone") from None


@found_by("test_a_snapshot_is_its_owners")
class ShowsSnapshotsToAll(FakeAdapter):
    def snapshot_get(self, owner: Owner, ref: str) -> SnapshotInfo:
        found = self.backend.find_snapshot(ref)
        return super().snapshot_get(owner, ref) if found is None else snapshots.told(found)


@found_by("test_one_operation_is_one_snapshot")
class CapturesAgain(FakeAdapter):
    number = itertools.count()

    def snapshot(self, target: Target, request: SnapshotRequest, deadline: float) -> SnapshotInfo:
        return super().snapshot(target, replace(request, operation=str(next(self.number))), deadline)


@found_by("test_a_deleted_snapshot_is_gone_and_deleting_it_again_succeeds")
class MissesDeletedSnapshots(FakeAdapter):
    def snapshot_delete(self, owner: Owner, ref: str) -> None:
        self.snapshot_get(owner, ref)
        super().snapshot_delete(owner, ref)


@found_by("test_a_snapshot_that_cannot_be_restored_fails_the_new_sandbox_and_leaves_nothing")
class StartsEmptyInstead(FakeAdapter):
    def _source(self, request: CreateRequest) -> FakeSnapshot | None:
        return None


@found_by("test_another_incarnation_is_left_alone[pause]")
class PausesWhatIsThere(FakeAdapter):
    def pause(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        return super().pause(target, replace(transition, incarnation=self.get(target).incarnation), deadline)


@found_by("test_observing_what_never_was_begins_nothing[pause]")
class PausesWhenItShouldLook(FakeAdapter):
    def pause(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        return super().pause(target, replace(transition, observe_only=False), deadline)


@found_by("test_a_resume_of_what_was_stopped_is_no_cold_start")
class StartsCold(FakeAdapter):
    def resume(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        if self.get(target).state is InstanceState.STOPPED:
            return Transitioned(Progress.DONE, self.start(target, deadline))
        return super().resume(target, transition, deadline)


@found_by("test_a_pause_that_is_called_off_leaves_the_same_incarnation_running")
class SaysItCalledOff(FakeAdapter):
    def call_off(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        return Transitioned(Progress.DONE, self.get(target))


@found_by("test_what_changes_something_is_asked_for_once[stop]")
class AsksTwice(FakeAdapter):
    def stop(self, target: Target, deadline: float) -> Instance:
        try:
            return super().stop(target, deadline)
        except BackendError:
            return super().stop(target, deadline)


@found_by("test_a_stop_keeps_the_disk_and_a_start_goes_on_from_it")
class LosesTheDisk(FakeAdapter):
    def stop(self, target: Target, deadline: float) -> Instance:
        stopped = super().stop(target, deadline)
        for instance in self.backend.instances():
            instance.env.clear()
        return stopped


@found_by("test_a_renewal_starts_nothing")
class StartsWhatItRenews(FakeAdapter):
    def renew(self, target: Target, until: datetime) -> datetime | None:
        self.start(target, 5.0)
        return super().renew(target, until)


@found_by("test_looking_leaves_a_sleeper_asleep_and_using_wakes_it")
class WakesWhatItSees(FakeAdapter):
    def get(self, target: Target) -> Instance:
        for instance in self.backend.instances():
            instance.used_at = self.backend.clock.monotonic()
        return super().get(target)


@found_by("test_a_batch_keeps_the_order_and_tells_of_each_by_itself")
class TurnsBatchesRound(FakeAdapter):
    def observe_many(self, targets: Sequence[Target]) -> Observations:
        return super().observe_many(targets)[::-1]


@found_by("test_an_outage_never_passes_for_absence_in_a_batch")
class SaysGoneInAnOutage(FakeAdapter):
    def observe_many(self, targets: Sequence[Target]) -> Observations:
        try:
            return super().observe_many(targets)
        except BackendError:
            return [NotFound("gone") for _ in targets]


@found_by("test_a_list_whose_pages_do_not_all_come_is_an_error[the second page of the next list never comes]")
class ListsWhatCame(FakeAdapter):
    def list(self, installation: str) -> Instances:
        try:
            return super().list(installation)
        except BackendError:
            return []


@found_by("test_an_entry_on_two_pages_is_listed_once")
class ListsTwice(FakeAdapter):
    def _list(self, installation: str, fault: Fault | None) -> Instances:
        page, cursor = self.backend.page(installation, "", fault)
        found = [self._seen(entry) for entry in page]
        while cursor:
            page, cursor = self.backend.page(installation, cursor, fault)
            found += [self._seen(entry) for entry in page]
        return found


@found_by("test_a_filter_that_is_ignored_lets_nothing_foreign_in")
class TrustsTheFilter(ListsTwice):
    """Its pages do not overlap here; whose entries they hold, it does not look."""


@found_by("test_what_only_looks_like_ours_is_not_ours[a longer sandbox]")
class ComparesTheBeginning(FakeAdapter):
    def get(self, target: Target) -> Instance:
        for instance in self.backend.instances():
            if instance.owner.sandbox.startswith(target.owner.sandbox):
                return replace(self._seen(instance), owner=target.owner)
        return super().get(target)


@found_by("test_a_delete_in_transition_is_no_success_and_is_finished_later")
class TakesAConflictForSuccess(FakeAdapter):
    def delete(self, target: Target) -> None:
        with contextlib.suppress(InvalidState):
            super().delete(target)


@found_by("test_no_room_is_insufficient_capacity_and_nothing_was_made")
class TakesAFullBackendForAnOutage(FakeAdapter):
    def create(self, request: CreateRequest, deadline: float) -> Instance:
        try:
            return super().create(request, deadline)
        except InsufficientCapacity as error:
            raise ProviderUnavailable(error.message, settled=True) from None


@found_by("test_a_create_that_fails_says_whose_fault_it_is_and_what_is_left_can_be_removed"
          "[the instance of the next create fails, on a backend that is well-SandboxFailed]")  # fmt: skip
class SaysThatNothingIsLeft(FakeAdapter):
    def create(self, request: CreateRequest, deadline: float) -> Instance:
        try:
            return super().create(request, deadline)
        except SandboxFailed as error:
            raise SandboxFailed(error.message, settled=True) from None


@found_by("test_a_rejected_credential_is_an_outage_of_the_pool_and_is_not_told")
class TellsItsCredential(FakeAdapter):
    def get(self, target: Target) -> Instance:
        try:
            return super().get(target)
        except ProviderUnavailable:
            raise ProviderUnavailable(f"The backend rejected {TOKEN}.") from None


@found_by("test_a_closed_client_has_no_threads")
class LeavesAThread(FakeAdapter):
    def get(self, target: Target) -> Instance:
        threading.Thread(target=threading.Event().wait, args=(30,), daemon=True).start()
        return super().get(target)


@found_by("test_rules_that_are_not_in_force_are_never_told_as_success")
class TakesAcceptedForInForce(FakeAdapter):
    def egress_set(self, target: Target, rules: EgressRules) -> None:
        with contextlib.suppress(ProviderUnavailable):
            super().egress_set(target, rules)


@found_by("test_a_port_that_is_none_is_refused[0]")
class ExposesAnything(FakeAdapter):
    def port_expose(self, target: Target, port: int, seconds: int) -> Exposure:
        return super().port_expose(target, max(1, port), seconds)


@found_by("test_an_interrupted_job_ends_by_itself")
class StopsInsteadOfAsking(FakeAdapter):
    def job_interrupt(self, target: Target, job: str) -> Job:
        return self.job_stop(target, job)


@found_by("test_unsupported_operations_are_refused_before_any_io")
class AnswersWhatItDoesNotOffer(FakeAdapter):
    operations: ClassVar[Declaration] = {**FakeAdapter.operations, Operation.DISCOVER: Unsupported("nothing")}

    def discover(self) -> Catalog:
        return Catalog()


class TestFlawed(OverTheFake):
    """The flaw is chosen by the name of the test."""

    @pytest.fixture
    def flawed(self, request: pytest.FixtureRequest) -> type[FakeAdapter]:
        return FLAWS[request.node.name]

    @pytest.fixture
    def adapter(self, backend: FakeUnderTest, flawed: type[FakeAdapter]) -> Adapter:
        return flawed.over(backend.cloud, credential={"token": TOKEN})

    @pytest.fixture
    def restarted(self, adapter: Adapter) -> Adapter:
        return adapter
