"""One adapter for each pool as it is configured, and whose machines a pool runs on."""

from __future__ import annotations

from typing import Any

import pytest

from differently_adapters.pools import PoolAdapters, trust_of
from differently_adapters.providers.fake import FakeAdapter
from differently_core.errors import InvalidRequest, ProviderUnavailable
from differently_core.model.pool import Pool, PoolState, Trust
from differently_core.runtime.clock import VirtualClock

CLOCK = VirtualClock()


def a_pool(**changes: Any) -> Pool:
    facts = {
        "name": "p", "adapter": "fake", "trust": Trust.PRIVATE, "max_concurrency": 1, "created_at": CLOCK.now()
    }  # fmt: skip
    return Pool.model_validate({**facts, **changes})


@pytest.fixture
def adapters() -> PoolAdapters:
    return PoolAdapters(CLOCK, lambda: "inst_1", dev=True)


def test_an_adapter_is_built_once(adapters: PoolAdapters) -> None:
    assert adapters.adapter(a_pool()) is adapters.adapter(a_pool())
    assert adapters.adapter(a_pool()) is not adapters.adapter(a_pool(name="q"))


def test_a_pool_that_drains_keeps_its_adapter(adapters: PoolAdapters) -> None:
    first = adapters.adapter(a_pool())
    assert adapters.adapter(a_pool(state=PoolState.DRAINING, version=2)) is first


@pytest.mark.parametrize(
    "change", [{"config": {"backend": "b"}}, {"created_at": VirtualClock(CLOCK.now().replace(year=2027)).now()}]
)
def test_another_configuration_or_another_pool_of_the_name_gets_its_own(
    adapters: PoolAdapters, change: dict[str, Any]
) -> None:
    assert adapters.adapter(a_pool()) is not adapters.adapter(a_pool(**change))


def test_a_kind_for_development_needs_the_permission() -> None:
    with pytest.raises(InvalidRequest, match="for development only"):
        PoolAdapters(CLOCK, lambda: "inst_1").adapter(a_pool())


def test_a_named_credential_is_read_and_handed_over() -> None:
    asked: list[str] = []

    def credentials(name: str) -> dict[str, str]:
        asked.append(name)
        return {"token": "t"}

    PoolAdapters(CLOCK, lambda: "inst_1", credentials=credentials, dev=True).adapter(a_pool(credential="secret/one"))
    assert asked == ["secret/one"]


def test_without_a_store_of_credentials_the_pool_is_unavailable(adapters: PoolAdapters) -> None:
    with pytest.raises(ProviderUnavailable) as refusal:
        adapters.adapter(a_pool(credential="secret/one"))
    assert refusal.value.settled


def test_an_adapter_that_cannot_be_built_is_an_unavailable_backend(
    adapters: PoolAdapters, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ImportError("no such library, and a secret")

    monkeypatch.setattr(FakeAdapter, "__init__", broken)
    with pytest.raises(ProviderUnavailable, match="cannot be built: ImportError") as refusal:
        adapters.adapter(a_pool())
    assert "secret" not in refusal.value.message


def test_closing_closes_every_adapter_whatever_one_says(
    adapters: PoolAdapters, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[object] = []

    def close(self: FakeAdapter) -> None:
        closed.append(self)
        raise RuntimeError

    monkeypatch.setattr(FakeAdapter, "close", close)
    made = [adapters.adapter(a_pool()), adapters.adapter(a_pool(name="q"))]
    adapters.close()
    assert closed == made


def test_trust_is_what_the_kind_fixes_or_the_operator_declares() -> None:
    assert trust_of("fake", None) is Trust.PRIVATE
    assert trust_of("fake", Trust.EXTERNAL) is Trust.EXTERNAL
    assert trust_of("devhost", None) is Trust.PRIVATE
    with pytest.raises(InvalidRequest, match="There is no adapter kind"):
        trust_of("nothing", None)
