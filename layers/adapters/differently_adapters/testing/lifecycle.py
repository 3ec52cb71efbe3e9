"""Create, get, list and delete, also when answers are lost, late, or overlap."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from differently_core.contract import (
    LABEL_INSTALLATION,
    LABEL_SANDBOX,
    Adapter,
    InstanceState,
    Operation,
    Owner,
    Target,
)
from differently_core.errors import BackendError, InvalidRequest, InvalidState, NotFound

from .backend import BackendUnderTest, Mishap
from .calls import unheard
from .fixtures import CREATE_SECONDS, Arrange, Make, SuiteFixtures, Until, needs_idempotent_create

OVERLAPPING = 8


class LifecycleTests(SuiteFixtures):
    def test_a_created_instance_is_its_owners_and_runs(
        self, adapter: Adapter, owner: Owner, make: Make, until: Until
    ) -> None:
        created = adapter.create(make(owner), CREATE_SECONDS)
        assert created.owner == owner
        assert created.ref
        assert created.state in {InstanceState.RUNNING, InstanceState.PENDING}
        until(lambda: adapter.get(Target(owner, created.ref)).state is InstanceState.RUNNING)

    def test_get_finds_it_by_ref_and_by_owner(self, adapter: Adapter, sandbox: Target) -> None:
        assert adapter.get(sandbox).ref == sandbox.ref
        assert adapter.get(Target(sandbox.owner)).ref == sandbox.ref

    def test_get_changes_nothing(self, adapter: Adapter, sandbox: Target) -> None:
        assert adapter.get(sandbox) == adapter.get(sandbox)

    def test_get_of_a_missing_one_is_not_found(self, adapter: Adapter, owner: Owner) -> None:
        with pytest.raises(NotFound):
            adapter.get(Target(owner))

    def test_creating_twice_returns_the_first(
        self, adapter: Adapter, restarted: Adapter, backend: BackendUnderTest, owner: Owner, make: Make
    ) -> None:
        needs_idempotent_create(adapter)
        first = adapter.create(make(owner), CREATE_SECONDS)
        again = restarted.create(make(owner), CREATE_SECONDS)
        assert again.ref == first.ref
        assert backend.count() == 1

    def test_creating_twice_keeps_what_the_first_has(
        self, adapter: Adapter, sandbox: Target, make: Make, run: Callable[..., object]
    ) -> None:
        needs_idempotent_create(adapter)
        run("echo kept > kept")
        adapter.create(make(sandbox.owner), CREATE_SECONDS)
        assert getattr(run("cat kept"), "stdout", b"") == b"kept\n"

    def test_overlapping_creates_make_one_instance(
        self, adapter: Adapter, restarted: Adapter, backend: BackendUnderTest, owner: Owner, make: Make
    ) -> None:
        needs_idempotent_create(adapter)
        request = make(owner)
        clients = [adapter, restarted] * (OVERLAPPING // 2)
        with ThreadPoolExecutor(OVERLAPPING) as pool:
            made = list(pool.map(lambda client: client.create(request, CREATE_SECONDS), clients))
        assert len({instance.ref for instance in made}) == 1
        assert backend.count() == 1

    def test_a_create_whose_answer_was_lost_is_found_by_its_owner(
        self, adapter: Adapter, restarted: Adapter, backend: BackendUnderTest, owner: Owner, make: Make
    ) -> None:
        backend.lose_answer(Operation.CREATE)
        unheard(lambda: adapter.create(make(owner), CREATE_SECONDS))
        found = restarted.get(Target(owner))
        assert found.owner == owner
        assert [instance.ref for instance in restarted.list(owner.installation)] == [found.ref]

    def test_a_create_is_repeated_safely_after_a_lost_answer(
        self, adapter: Adapter, restarted: Adapter, backend: BackendUnderTest, owner: Owner, make: Make
    ) -> None:
        needs_idempotent_create(adapter)
        backend.lose_answer(Operation.CREATE)
        unheard(lambda: adapter.create(make(owner), CREATE_SECONDS))
        again = restarted.create(make(owner), CREATE_SECONDS)
        assert backend.count() == 1
        assert restarted.get(Target(owner)).ref == again.ref

    def test_a_create_whose_answer_was_lost_can_be_cleaned_up_by_its_owner(
        self, adapter: Adapter, restarted: Adapter, backend: BackendUnderTest, owner: Owner, make: Make
    ) -> None:
        backend.lose_answer(Operation.CREATE)
        unheard(lambda: adapter.create(make(owner), CREATE_SECONDS))
        restarted.delete(Target(owner))
        assert backend.count() == 0

    def test_a_late_instance_is_found_and_removed_once_it_has_settled(
        self, adapter: Adapter, backend: BackendUnderTest, owner: Owner, make: Make
    ) -> None:
        if adapter.info().settles_seconds == 0:
            pytest.skip(f"{adapter.kind} declares settles_seconds=0: nothing can turn up late")
        backend.delay_create()
        with pytest.raises(BackendError) as failed:
            adapter.create(make(owner), CREATE_SECONDS)
        assert not failed.value.settled
        backend.settle()
        late = adapter.get(Target(owner))
        assert late.owner == owner
        adapter.delete(Target(owner, late.ref))
        assert backend.count() == 0

    def test_list_is_exactly_what_is_there(
        self, adapter: Adapter, new_owner: Callable[[], Owner], make: Make, installation: str
    ) -> None:
        assert adapter.list(installation) == []
        owners = [new_owner() for _ in range(3)]
        made = {owner: adapter.create(make(owner), CREATE_SECONDS).ref for owner in owners}
        assert {instance.owner: instance.ref for instance in adapter.list(installation)} == made
        adapter.delete(Target(owners[0], made.pop(owners[0])))
        assert {instance.owner: instance.ref for instance in adapter.list(installation)} == made

    def test_a_list_that_cannot_be_whole_is_an_error(
        self, adapter: Adapter, backend: BackendUnderTest, new_owner: Callable[[], Owner], make: Make, installation: str
    ) -> None:
        for _ in range(3):
            adapter.create(make(new_owner()), CREATE_SECONDS)
        backend.break_list()
        with pytest.raises(BackendError):
            adapter.list(installation)

    def test_delete_removes_it(self, adapter: Adapter, backend: BackendUnderTest, sandbox: Target) -> None:
        adapter.delete(sandbox)
        with pytest.raises(NotFound):
            adapter.get(sandbox)
        with pytest.raises(NotFound):
            adapter.get(Target(sandbox.owner))
        assert backend.count() == 0

    def test_deleting_what_is_gone_or_never_was_succeeds(
        self, adapter: Adapter, sandbox: Target, new_owner: Callable[[], Owner]
    ) -> None:
        adapter.delete(sandbox)
        adapter.delete(sandbox)
        adapter.delete(Target(sandbox.owner))
        adapter.delete(Target(new_owner()))

    def test_a_delete_whose_answer_was_lost_is_repeated_safely(
        self, adapter: Adapter, restarted: Adapter, backend: BackendUnderTest, sandbox: Target
    ) -> None:
        backend.lose_answer(Operation.DELETE)
        unheard(lambda: adapter.delete(sandbox))
        restarted.delete(sandbox)
        assert backend.count() == 0

    def test_two_deletes_at_once_both_succeed(
        self, adapter: Adapter, restarted: Adapter, backend: BackendUnderTest, sandbox: Target
    ) -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda client: client.delete(sandbox), [adapter, restarted]))
        assert backend.count() == 0

    def test_a_delete_in_transition_is_no_success_and_is_finished_later(
        self, adapter: Adapter, backend: BackendUnderTest, sandbox: Target, arrange: Arrange
    ) -> None:
        arrange(Mishap.DELETE_CONFLICTS)
        for _ in range(2):
            with pytest.raises((InvalidState, BackendError)):
                adapter.delete(sandbox)
        backend.settle()
        adapter.delete(sandbox)
        assert backend.count() == 0

    def test_labels_of_a_request_do_not_pass_for_its_owner(
        self, adapter: Adapter, owner: Owner, new_owner: Callable[[], Owner], make: Make
    ) -> None:
        other = new_owner()
        claims = {LABEL_SANDBOX: other.sandbox, LABEL_INSTALLATION: "inst_other"}
        try:
            created = adapter.create(replace(make(owner), labels=claims), CREATE_SECONDS)
        except InvalidRequest:
            return
        assert adapter.get(Target(owner, created.ref)).owner == owner
        with pytest.raises(NotFound):
            adapter.get(Target(other))

    def test_closing_a_client_leaves_instances_alone(
        self, adapter: Adapter, restarted: Adapter, sandbox: Target
    ) -> None:
        if restarted is not adapter:
            adapter.close()
        assert restarted.get(sandbox).state is InstanceState.RUNNING
