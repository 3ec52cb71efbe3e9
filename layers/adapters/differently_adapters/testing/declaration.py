"""What an adapter says of itself, and that it is so."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from differently_core.contract import (
    PROTOCOL_VERSION,
    Adapter,
    Operation,
    Owner,
    Target,
    Unsupported,
    effective_features,
    supports,
    validate,
)
from differently_core.errors import BackendError, DifferentlyError, ProviderUnavailable, UnsupportedOperation
from differently_core.model import features

from .backend import BackendUnderTest
from .calls import every_call
from .fixtures import Make, SuiteFixtures

CANARY = "canary-7d1f0c"


class DeclarationTests(SuiteFixtures):
    def test_the_declaration_is_complete_and_matches_the_class(self, adapter: Adapter) -> None:
        validate(type(adapter))
        assert adapter.kind == self.kind
        assert adapter.info().kind == self.kind

    def test_info_needs_no_backend(self, adapter: Adapter, backend: BackendUnderTest) -> None:
        backend.go_down()
        info = adapter.info()
        assert info.protocol == PROTOCOL_VERSION
        assert info.settles_seconds >= 0
        assert info.isolation

    def test_features_are_known_and_match_the_operations(self, adapter: Adapter) -> None:
        told = adapter.capabilities().features
        assert told <= features.KNOWN
        assert features.EXEC in told
        assert effective_features(adapter, told) == told

    def test_limits_are_amounts_and_a_lease_can_be_renewed(self, adapter: Adapter) -> None:
        told = adapter.capabilities()
        amounts = (told.max_cpu_millis, told.max_memory_mib, told.max_disk_gib, told.max_lifetime_seconds)
        assert min(amounts) >= 0
        assert told.lease_seconds == 0 or supports(adapter, Operation.RENEW)

    def test_capacity_is_told_in_full_or_as_unbounded(self, adapter: Adapter) -> None:
        room = adapter.capacity()
        assert room.free_cpu_millis >= room.largest_free_cpu_millis >= 0
        assert room.free_memory_mib >= room.largest_free_memory_mib >= 0

    def test_unsupported_operations_are_refused_before_any_io(
        self, adapter: Adapter, backend: BackendUnderTest, owner: Owner, make: Make
    ) -> None:
        undeclared = {op: support for op, support in adapter.operations.items() if isinstance(support, Unsupported)}
        if not undeclared:
            pytest.skip(f"{adapter.kind} declares every operation supported")
        calls = every_call(make(owner), "anything")
        backend.go_down()
        for operation, support in undeclared.items():
            with pytest.raises(UnsupportedOperation) as refused:
                calls[operation](adapter)
            told = refused.value.details
            assert (told["operation"], told["adapter"], told["reason"]) == (operation, self.kind, support.reason)

    def test_health_follows_the_backend(self, adapter: Adapter, backend: BackendUnderTest) -> None:
        adapter.health()
        backend.go_down()
        with pytest.raises(ProviderUnavailable):
            adapter.health()
        backend.come_up()
        adapter.health()

    def test_an_outage_is_the_backends_fault_in_every_lifecycle_call(
        self, adapter: Adapter, backend: BackendUnderTest, owner: Owner, make: Make
    ) -> None:
        backend.go_down()
        target = Target(owner)
        for call in (
            lambda: adapter.create(make(owner), 5.0),
            lambda: adapter.list(owner.installation),
            lambda: adapter.get(target),
        ):
            with pytest.raises(BackendError):
                call()

    def test_no_error_tells_a_credential_or_a_value_of_the_environment(
        self, adapter: Adapter, backend: BackendUnderTest, owner: Owner, make: Make
    ) -> None:
        request = make(owner, {"SECRET": CANARY})
        assert CANARY not in repr(request)
        backend.go_down()
        calls = [partial(call, adapter) for call in every_call(request, "missing").values()]
        told = "\n".join(_everything_told(error) for error in map(_error_of, calls) if error is not None)
        assert told
        for secret in (CANARY, *self.secrets):
            assert secret not in told


def _error_of(call: Callable[[], object]) -> DifferentlyError | None:
    try:
        call()
    except DifferentlyError as error:
        return error
    return None


def _everything_told(error: BaseException) -> str:
    seen: list[str] = []
    link: BaseException | None = error
    while link is not None:
        seen.append(f"{link!r} {getattr(link, 'details', '')}")
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return "\n".join(seen)
