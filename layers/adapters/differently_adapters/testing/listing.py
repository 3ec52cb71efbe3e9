"""A list is whole or an error, whatever its pages do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from differently_core.contract import Adapter, Owner
from differently_core.errors import BackendError

from .backend import BackendUnderTest, Mishap
from .fixtures import CREATE_SECONDS, Arrange, Make, SuiteFixtures

OURS = 5
THEIRS = 3


class ListTests(SuiteFixtures):
    @pytest.fixture
    def several(self, adapter: Adapter, new_owner: Callable[[], Owner], make: Make) -> dict[Owner, str]:
        """Instances of ours, by owner."""
        owners = [new_owner() for _ in range(OURS)]
        return {owner: adapter.create(make(owner), CREATE_SECONDS).ref for owner in owners}

    @pytest.mark.parametrize("mishap", [Mishap.PAGE_LOST, Mishap.CURSOR_REPEATED])
    def test_a_list_whose_pages_do_not_all_come_is_an_error(
        self, adapter: Adapter, several: dict[Owner, str], installation: str, arrange: Arrange, mishap: Mishap
    ) -> None:
        arrange(mishap)
        with pytest.raises(BackendError):
            adapter.list(installation)
        assert {instance.owner: instance.ref for instance in adapter.list(installation)} == several

    def test_an_entry_on_two_pages_is_listed_once(
        self, adapter: Adapter, several: dict[Owner, str], installation: str, arrange: Arrange
    ) -> None:
        arrange(Mishap.PAGES_OVERLAP)
        listed = adapter.list(installation)
        assert len(listed) == len(several)
        assert {instance.owner: instance.ref for instance in listed} == several

    def test_a_filter_that_is_ignored_lets_nothing_foreign_in(
        self,
        adapter: Adapter,
        backend: BackendUnderTest,
        several: dict[Owner, str],
        installation: str,
        other_installation: str,
        new_owner: Callable[[], Owner],
        arrange: Arrange,
    ) -> None:
        for _ in range(THEIRS):
            ours = new_owner()
            backend.plant_foreign(ours, Owner(other_installation, ours.sandbox))
        arrange(Mishap.FILTER_IGNORED)
        assert {instance.owner: instance.ref for instance in adapter.list(installation)} == several
