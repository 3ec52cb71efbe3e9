"""An instance of another owner is never read, used, changed or removed, whatever its name is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

import pytest

from differently_core.contract import Adapter, InstanceState, Operation, Owner, Target, supports
from differently_core.errors import DifferentlyError, NotFound

from .backend import BackendUnderTest, CannotHappen
from .calls import ON_TARGET
from .fixtures import CREATE_SECONDS, Make, SuiteFixtures, needs

LOOK_ALIKES: Mapping[str, Callable[[Owner], Owner]] = {
    "installation in upper case": lambda ours: Owner(ours.installation.upper(), ours.sandbox),
    "sandbox in lower case": lambda ours: Owner(ours.installation, ours.sandbox.lower()),
    "a space behind": lambda ours: Owner(f"{ours.installation} ", ours.sandbox),
    "a longer installation": lambda ours: Owner(f"{ours.installation}0", ours.sandbox),
    "a shorter installation": lambda ours: Owner(ours.installation[:-1], ours.sandbox),
    "a longer sandbox": lambda ours: Owner(ours.installation, f"{ours.sandbox}0"),
    "a letter of another alphabet": lambda ours: Owner(ours.installation.replace("s", "\u0455"), ours.sandbox),
    "no installation": lambda ours: Owner("", ours.sandbox),
    "no sandbox": lambda ours: Owner(ours.installation, ""),
}


class OwnershipTests(SuiteFixtures):
    @pytest.mark.parametrize("how", LOOK_ALIKES)
    def test_what_only_looks_like_ours_is_not_ours(
        self, adapter: Adapter, backend: BackendUnderTest, owner: Owner, how: str
    ) -> None:
        try:
            target = backend.plant_foreign(owner, LOOK_ALIKES[how](owner))
        except CannotHappen as why:
            pytest.skip(f"{self.kind}: no instance can carry {how}: {why}")
        for named in (target, Target(owner)):
            with pytest.raises(NotFound):
                adapter.get(named)
            with contextlib.suppress(NotFound):
                adapter.delete(named)
        listed = [instance.owner for instance in adapter.list(owner.installation)]
        assert owner not in listed
        assert {entry.installation for entry in listed} <= {owner.installation}
        assert backend.count() == 1

    @pytest.mark.parametrize("operation", list(ON_TARGET))
    @pytest.mark.parametrize("whose", ["another installation's", "another sandbox's"])
    def test_another_owner_finds_nothing_behind_the_ref_and_changes_nothing(
        self,
        adapter: Adapter,
        backend: BackendUnderTest,
        sandbox: Target,
        new_owner: Callable[[], Owner],
        other_installation: str,
        whose: str,
        operation: Operation,
    ) -> None:
        needs(adapter, operation)
        self._leave_a_file(adapter, sandbox)
        stranger = Owner(other_installation, sandbox.owner.sandbox) if whose.endswith("tion's") else new_owner()
        with pytest.raises(NotFound):
            ON_TARGET[operation](adapter, Target(stranger, sandbox.ref))
        self._is_untouched(adapter, backend, sandbox)

    @pytest.mark.parametrize("operation", list(ON_TARGET))
    def test_a_foreign_instance_under_our_name_is_not_ours(
        self, adapter: Adapter, backend: BackendUnderTest, owner: Owner, other_installation: str, operation: Operation
    ) -> None:
        needs(adapter, operation)
        target = backend.plant_foreign(owner, Owner(other_installation, owner.sandbox))
        before = backend.count()
        with pytest.raises(NotFound):
            ON_TARGET[operation](adapter, target)
        assert backend.count() == before

    def test_a_create_does_not_take_a_foreign_instance_for_its_own(
        self, adapter: Adapter, backend: BackendUnderTest, owner: Owner, other_installation: str, make: Make
    ) -> None:
        target = backend.plant_foreign(owner, Owner(other_installation, owner.sandbox))
        try:
            created = adapter.create(make(owner), CREATE_SECONDS)
        except DifferentlyError:
            assert backend.count() == 1
            return
        assert created.owner == owner
        assert created.ref != target.ref
        assert backend.count() == 2

    def test_deleting_by_owner_leaves_what_is_not_the_owners(
        self, adapter: Adapter, backend: BackendUnderTest, sandbox: Target, other_installation: str
    ) -> None:
        self._leave_a_file(adapter, sandbox)
        adapter.delete(Target(Owner(other_installation, sandbox.owner.sandbox)))
        self._is_untouched(adapter, backend, sandbox)

    def test_foreign_instances_are_not_listed(
        self,
        adapter: Adapter,
        backend: BackendUnderTest,
        sandbox: Target,
        new_owner: Callable[[], Owner],
        other_installation: str,
        make: Make,
    ) -> None:
        theirs = Owner(other_installation, new_owner().sandbox)
        adapter.create(make(theirs), CREATE_SECONDS)
        ours = new_owner()
        backend.plant_foreign(ours, Owner(other_installation, ours.sandbox))
        assert [instance.ref for instance in adapter.list(sandbox.owner.installation)] == [sandbox.ref]
        listed = {instance.owner for instance in adapter.list(other_installation)}
        assert theirs in listed
        assert all(owner.installation == other_installation for owner in listed)

    def _leave_a_file(self, adapter: Adapter, sandbox: Target) -> None:
        if supports(adapter, Operation.FILE_WRITE):
            adapter.file_write(sandbox, "conformance/kept", [b"kept"])

    def _is_untouched(self, adapter: Adapter, backend: BackendUnderTest, sandbox: Target) -> None:
        assert backend.count() == 1
        assert adapter.get(sandbox).state is InstanceState.RUNNING
        if supports(adapter, Operation.FILE_READ):
            assert b"".join(adapter.file_read(sandbox, "conformance/kept").chunks) == b"kept"
