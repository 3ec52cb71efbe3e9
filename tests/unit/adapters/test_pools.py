"""One adapter for each pool as it is configured, and whose machines a pool runs on."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from differently_adapters.pools import REREAD_SECONDS, RETIRED_SECONDS, RETRY_SECONDS, PoolAdapters, trust_of
from differently_adapters.providers.fake import FakeAdapter
from differently_core.contract import Credential, CredentialGone, Verification
from differently_core.errors import DifferentlyError, InvalidRequest, ProviderUnavailable
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


class Kept:
    """Credentials in memory: what each pool gets, or the error that it meets; every reading is counted."""

    def __init__(self, version: str = "rev_1", **fields: str) -> None:
        self.answer: Credential | DifferentlyError = Credential(version, fields)
        self.read_for: list[str] = []

    def read(self, pool: Pool) -> Credential:
        self.read_for.append(pool.name)
        if isinstance(self.answer, DifferentlyError):
            raise self.answer
        return self.answer


def token_of(adapter: object) -> str:
    assert isinstance(adapter, FakeAdapter)
    return adapter.context.credential["token"]


def over(kept: Kept, clock: VirtualClock = CLOCK) -> PoolAdapters:
    return PoolAdapters(clock, lambda: "inst_1", credentials=kept, dev=True)


STORED = {"credential": "secret:eu", "credential_revision": "rev_1"}
ROTATED = {"credential": "secret:eu", "credential_revision": "rev_2"}
VAULTED = {"credential": "arn:aws:ssm:eu-central-1:000000000000:parameter/pool"}
UNREADABLE = ProviderUnavailable("The store did not answer.", settled=True)
GONE = CredentialGone("It was removed.", settled=True)


def test_a_credential_is_read_once_and_handed_over() -> None:
    kept = Kept(token="first")
    adapters = over(kept)
    first = adapters.adapter(a_pool(**STORED))
    assert adapters.adapter(a_pool(**STORED)) is first
    assert adapters.adapter(a_pool(**STORED, state=PoolState.DRAINING, version=2)) is first
    assert (token_of(first), kept.read_for) == ("first", ["p"])


def test_a_rotation_takes_effect_with_the_pool_that_names_it() -> None:
    """features.md 2 #11: without a restart, and never before the pool says so."""
    kept = Kept(token="first")
    adapters = over(kept)
    first = adapters.adapter(a_pool(**STORED))
    kept.answer = Credential("rev_2", {"token": "second"})
    assert adapters.adapter(a_pool(**STORED)) is first
    second = adapters.adapter(a_pool(**ROTATED))
    assert (token_of(first), token_of(second)) == ("first", "second")
    assert adapters.adapter(a_pool(**ROTATED)) is second


def test_a_credential_that_cannot_be_read_keeps_the_working_adapter() -> None:
    """features.md 2 #78: one failed read must not take a healthy pool down; it is looked at again soon, not always."""
    clock = VirtualClock()
    kept = Kept(token="first")
    adapters = over(kept, clock)
    first = adapters.adapter(a_pool(**STORED))
    kept.answer = UNREADABLE
    assert adapters.adapter(a_pool(**ROTATED)) is first
    assert adapters.adapter(a_pool(**ROTATED)) is first
    assert len(kept.read_for) == 2

    kept.answer = Credential("rev_2", {"token": "second"})
    clock.advance(RETRY_SECONDS)
    assert token_of(adapters.adapter(a_pool(**ROTATED))) == "second"


def test_a_credential_that_is_gone_takes_the_adapter_down() -> None:
    """features.md 2 #78: deleted is not unreadable."""
    kept = Kept(token="first")
    adapters = over(kept)
    adapters.adapter(a_pool(**STORED))
    kept.answer = GONE
    taken_down = a_pool(credential="secret:eu")
    for _ in range(2):
        with pytest.raises(CredentialGone):
            adapters.adapter(taken_down)
    kept.answer = Credential("rev_3", {"token": "third"})
    assert token_of(adapters.adapter(a_pool(credential="secret:eu", credential_revision="rev_3"))) == "third"


def test_another_configuration_needs_no_second_reading() -> None:
    kept = Kept(token="first")
    adapters = over(kept)
    adapters.adapter(a_pool(**STORED))
    kept.answer = UNREADABLE
    assert token_of(adapters.adapter(a_pool(**STORED, config={"backend": "b"}))) == "first"


def test_a_pool_whose_credential_was_never_read_is_unavailable() -> None:
    kept = Kept()
    kept.answer = UNREADABLE
    with pytest.raises(ProviderUnavailable, match="did not answer"):
        over(kept).adapter(a_pool(**STORED))


def test_a_credential_from_elsewhere_is_looked_at_now_and_then_and_must_prove_itself() -> None:
    clock = VirtualClock()
    kept = Kept("1", token="first")
    adapters = over(kept, clock)
    pool = a_pool(**VAULTED, config={"backend": "vaulted"})
    first = adapters.adapter(pool)
    assert isinstance(first, FakeAdapter)
    first.backend.token = "first"

    kept.answer = Credential("2", {"token": "wrong"})
    assert adapters.adapter(pool) is first
    clock.advance(REREAD_SECONDS)
    assert adapters.adapter(pool) is first, "the backend does not take the new one, so the old one stays"

    first.backend.token = "second"
    kept.answer = Credential("3", {"token": "second"})
    clock.advance(RETRY_SECONDS)
    assert token_of(adapters.adapter(pool)) == "second"


def test_replaced_values_stay_untold_while_a_call_with_one_may_be_under_way() -> None:
    clock = VirtualClock()
    kept = Kept(token="first")
    adapters = over(kept, clock)
    adapters.adapter(a_pool(**STORED))
    kept.answer = Credential("rev_2", {"token": "second"})
    second = adapters.adapter(a_pool(**ROTATED))
    assert isinstance(second, FakeAdapter)
    assert set(second.context.untold) == {"first", "second"}

    clock.advance(RETIRED_SECONDS)
    kept.answer = Credential("rev_3", {"token": "third"})
    third = adapters.adapter(a_pool(credential="secret:eu", credential_revision="rev_3"))
    assert isinstance(third, FakeAdapter)
    assert set(third.context.untold) == {"second", "third"}


def test_one_pools_slow_credential_holds_up_no_other_and_no_working_adapter() -> None:
    """features.md 2 #75, for credentials: readers go on with what works while one thread looks."""
    kept = Kept(token="first")
    adapters = over(kept)
    first = adapters.adapter(a_pool(**STORED))
    asked, answered = threading.Event(), threading.Event()

    def slow(pool: Pool) -> Credential:
        if pool.name == "p":
            asked.set()
            assert answered.wait(10)
            return Credential("rev_2", {"token": "second"})
        return Credential("rev_1", {"token": "other"})

    kept.read = slow  # type: ignore[method-assign]
    renewing = threading.Thread(target=lambda: adapters.adapter(a_pool(**ROTATED)))
    renewing.start()
    assert asked.wait(10)
    assert adapters.adapter(a_pool(**ROTATED)) is first
    assert token_of(adapters.adapter(a_pool(name="q", **STORED))) == "other"
    answered.set()
    renewing.join(10)
    assert token_of(adapters.adapter(a_pool(**ROTATED))) == "second"


@pytest.mark.parametrize(
    ("kind", "config", "fields"),
    [
        ("fake", {}, {"canary": "x"}),
        ("fake", {}, {"token": "x", "canary": "y"}),
        ("fake", {}, {}),
        ("devhost", {"root": "/tmp/none"}, {"token": "canary"}),
    ],
)
def test_fields_that_a_kind_does_not_have_are_refused_and_not_repeated(
    adapters: PoolAdapters, kind: str, config: dict[str, Any], fields: dict[str, str]
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        adapters.trial(a_pool(adapter=kind, config=config), fields)
    assert refusal.value.details["field"] == "credential"
    assert "canary" not in refusal.value.message


def test_a_text_without_names_is_the_only_field(adapters: PoolAdapters) -> None:
    assert token_of(adapters.trial(a_pool(), {"": "whole"})) == "whole"


def test_what_holds_a_credential_does_not_show_it() -> None:
    kept = Kept(token="canary-value")
    adapters = over(kept)
    adapter = adapters.adapter(a_pool(**STORED))
    assert isinstance(adapter, FakeAdapter)
    slot = next(iter(adapters._slots.values()))
    assert "canary" not in repr((kept.answer, adapter.context, slot.built))


def test_without_a_store_of_credentials_the_pool_is_unavailable(adapters: PoolAdapters) -> None:
    with pytest.raises(ProviderUnavailable) as refusal:
        adapters.adapter(a_pool(credential="secret:one"))
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


def test_a_kind_that_was_verified_by_too_little_is_refused_by_name() -> None:
    """A stored pool of such a kind is unavailable with the same reason."""
    strict = PoolAdapters(CLOCK, lambda: "inst_1", minimum=Verification.VENDOR_SDK, dev=True)
    for build in (strict.adapter, strict.trial):
        with pytest.raises(InvalidRequest, match=r"set adapters\.minimumLevel to fake") as refusal:
            build(a_pool())
        assert refusal.value.details == {
            "field": "adapter",
            "adapter": "fake",
            "level": "fake",
            "minimum": "vendor SDK",
        }
    assert strict.adapter(a_pool(adapter="devhost", config={"root": "/tmp/none"})).kind == "devhost"


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
