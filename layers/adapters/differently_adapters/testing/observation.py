"""Looking changes nothing, and a batch tells of each by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from differently_core.contract import Adapter, Instance, InstanceState, Operation, Owner, Target, Transition, supports
from differently_core.errors import BackendError, DifferentlyError, NotFound, ProviderUnavailable

from .backend import BackendUnderTest, Mishap
from .fixtures import CREATE_SECONDS, MOVE_SECONDS, Arrange, Make, Run, SuiteFixtures, Until, needs

LOOKS = (
    Operation.INFO, Operation.CAPABILITIES, Operation.CAPACITY, Operation.HEALTH, Operation.GET, Operation.LIST,
    Operation.OBSERVE_MANY, Operation.DISCOVER, Operation.VERIFY_CREDENTIAL,
)  # fmt: skip


def look(adapter: Adapter, operation: Operation, target: Target) -> object:
    match operation:
        case Operation.GET:
            return adapter.get(target), adapter.get(Target(target.owner))
        case Operation.LIST:
            return adapter.list(target.owner.installation)
        case Operation.OBSERVE_MANY:
            return adapter.observe_many([target, Target(target.owner)])
        case _:
            call: Callable[[], object] = getattr(adapter, operation.value)
            return call()


class ObservationTests(SuiteFixtures):
    @pytest.mark.parametrize("operation", LOOKS)
    def test_looking_changes_nothing(
        self, adapter: Adapter, restarted: Adapter, backend: BackendUnderTest, sandbox: Target, operation: Operation
    ) -> None:
        needs(adapter, operation)
        before = backend.state_digest()
        for client in (adapter, restarted):
            look(client, operation, sandbox)
        assert backend.state_digest() == before

    @pytest.mark.parametrize("state", [InstanceState.STOPPED, InstanceState.PAUSED])
    def test_looking_wakes_nothing(
        self, adapter: Adapter, backend: BackendUnderTest, sandbox: Target, until: Until, state: InstanceState
    ) -> None:
        if state is InstanceState.STOPPED:
            needs(adapter, Operation.STOP)
            adapter.stop(sandbox, MOVE_SECONDS)
        else:
            needs(adapter, Operation.PAUSE)
            adapter.pause(sandbox, Transition("op-1", adapter.get(sandbox).incarnation), MOVE_SECONDS)
        until(lambda: adapter.get(sandbox).state is state)
        self._look_at_all(adapter, backend, sandbox)
        assert adapter.get(sandbox).state is state

    def test_looking_leaves_a_sleeper_asleep_and_using_wakes_it(
        self, adapter: Adapter, backend: BackendUnderTest, sandbox: Target, arrange: Arrange, run: Run
    ) -> None:
        arrange(Mishap.FALLS_ASLEEP)
        assert adapter.get(sandbox).idle
        self._look_at_all(adapter, backend, sandbox)
        assert adapter.get(sandbox).idle
        assert run("echo awake").stdout == b"awake\n"
        assert not adapter.get(sandbox).idle

    def _look_at_all(self, adapter: Adapter, backend: BackendUnderTest, sandbox: Target) -> None:
        before = backend.state_digest()
        for operation in LOOKS:
            if supports(adapter, operation):
                look(adapter, operation, sandbox)
        assert backend.state_digest() == before

    def test_a_batch_keeps_the_order_and_tells_of_each_by_itself(
        self,
        adapter: Adapter,
        backend: BackendUnderTest,
        sandbox: Target,
        new_owner: Callable[[], Owner],
        other_installation: str,
        make: Make,
    ) -> None:
        needs(adapter, Operation.OBSERVE_MANY)
        other, foreign = new_owner(), new_owner()
        second = Target(other, adapter.create(make(other), CREATE_SECONDS).ref)
        asked = [
            Target(new_owner()),
            sandbox,
            backend.plant_foreign(foreign, Owner(other_installation, foreign.sandbox)),
            second,
            Target(sandbox.owner),
            sandbox,
        ]
        told = adapter.observe_many(asked)
        assert [_ref(entry) for entry in told] == [None, sandbox.ref, None, second.ref, sandbox.ref, sandbox.ref]
        assert isinstance(told[0], NotFound)
        assert isinstance(told[2], NotFound)
        assert told[1] == adapter.get(sandbox)

    def test_an_empty_batch_is_empty(self, adapter: Adapter) -> None:
        needs(adapter, Operation.OBSERVE_MANY)
        assert adapter.observe_many([]) == []

    def test_an_outage_never_passes_for_absence_in_a_batch(
        self, adapter: Adapter, backend: BackendUnderTest, sandbox: Target
    ) -> None:
        needs(adapter, Operation.OBSERVE_MANY)
        backend.go_down()
        try:
            told = adapter.observe_many([sandbox, Target(sandbox.owner)])
        except BackendError:
            return
        assert all(isinstance(entry, BackendError) for entry in told)

    def test_what_can_be_configured_is_told_in_names(self, adapter: Adapter) -> None:
        needs(adapter, Operation.DISCOVER)
        told = adapter.discover()
        assert all(name and isinstance(text, str) for name, text in {**told.templates, **told.regions}.items())

    def test_a_credential_that_gives_no_access_is_the_backends_word(
        self, adapter: Adapter, backend: BackendUnderTest, arrange: Arrange
    ) -> None:
        needs(adapter, Operation.VERIFY_CREDENTIAL)
        adapter.verify_credential()
        arrange(Mishap.CREDENTIAL_REVOKED)
        with pytest.raises(ProviderUnavailable):
            adapter.verify_credential()
        backend.come_up()
        adapter.verify_credential()


def _ref(entry: Instance | DifferentlyError) -> str | None:
    return entry.ref if isinstance(entry, Instance) else None
