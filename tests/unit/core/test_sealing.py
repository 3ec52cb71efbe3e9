"""Every event gets one place in its organization's chain, however it is delivered and whenever a sealer dies.

reliability.md I10; F2, F9, F10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from differently_core.audit.canonical import canonical
from differently_core.audit.tree import EMPTY_ROOT, Frontier, leaf_hash, node_hash
from differently_core.model.audit import SEGMENT_EVENTS_MAX, ChainHead, Segment
from differently_core.model.event import Event
from differently_core.operations import sealing
from differently_core.operations.core import Core
from differently_core.runtime.ids import ulid
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Action, Outcome, Store, StoreUnavailable
from tests.support.world import World

ORG = "org_1"


@pytest.fixture
def core() -> Core:
    return World().core


def an_event(core: Core, number: int, **facts: Any) -> Event:
    """Events a second apart; each has its own number in its id."""
    at = core.clock.now() + timedelta(seconds=number)
    made = {
        "id": f"evt_{ulid(at, number.to_bytes(10, 'big'))}", "org": ORG, "at": at, "actor": "key_1",
        "request_id": "req_1", "action": "sandbox.create", "target": "sbx_1",
    }  # fmt: skip
    return Event.model_validate({**made, **facts})


def chain(core: Core, org: str = ORG) -> list[str]:
    """The sealed events in order, having checked that segments and head tell of one tree."""
    head = core.store.get(ChainHead, ChainHead.key_of(org)) or ChainHead(org=org)
    frontier, newest = Frontier(), ""
    found: list[str] = []
    for segment in sealing.segments(core.store, org, limit=3):
        assert segment.first == len(found)
        assert sealing.frontier_of(segment.first, segment.frontier) == frontier
        frontier = frontier.extend(sealing.as_bytes(text) for text in segment.hashes)
        found += segment.events
        newest = max([newest, *segment.events])
        assert segment.newest == newest
    assert (head.size, head.newest) == (len(found), newest)
    assert sealing.frontier_of(head.size, head.frontier) == frontier
    return found


def test_the_tree_is_that_of_rfc_6962() -> None:
    """RFC 6962, 2.1: the last subtree may be smaller, and leaves and nodes are hashed apart."""
    one, two, three = (leaf_hash(text) for text in (b"", b"\x00", b"\x10"))
    assert one.hex() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    assert Frontier().root() == EMPTY_ROOT
    assert Frontier().extend([one, two]).root().hex().startswith("fac54203e7cc696cf0dfcb42c92a1d9d")
    assert Frontier().extend([one, two, three]).root() == node_hash(node_hash(one, two), three)


def test_the_canonical_form_is_sorted_json_without_what_has_its_default(core: Core) -> None:
    event = an_event(core, 1, details={"é": "ü\n\x7f\u2028", "a": None, "\U0001f600": 2**60, "\ufb33": True})
    text = canonical(event).decode()
    assert text.startswith('{"action":"sandbox.create","actor":"key_1","at":"2026-01-01T00:00:01.000000Z","details":{')
    # RFC 8785 sorts by UTF-16 code units, where an emoji comes before U+FB33.
    assert '{"a":null,"é":"ü\\n\x7f\u2028","\U0001f600":1152921504606846976,"\ufb33":true}' in text
    assert "project" not in text
    assert ": " not in text


def test_a_batch_costs_two_round_trips_and_two_conditional_writes(core: Core) -> None:
    store = core.store
    assert isinstance(store, MemoryStore)
    sealing.seal(core, ORG, [an_event(core, 0)])
    with store.ledger.measure() as cost:
        done = sealing.seal(core, ORG, [an_event(core, number) for number in range(1, SEGMENT_EVENTS_MAX + 1)])
    assert done.events == SEGMENT_EVENTS_MAX
    assert cost.calls == ["GetItem", "TransactWriteItems"]
    assert len(list(sealing.segments(store, ORG))) == 2


def test_events_of_another_organization_are_left_alone(core: Core) -> None:
    assert sealing.seal(core, ORG, [an_event(core, 0, org="org_2")]).events == 0
    assert chain(core) == chain(core, "org_2") == []


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_order_and_any_repetition_seals_each_event_once(data: st.DataObject) -> None:
    core = World().core
    events = [an_event(core, number) for number in range(data.draw(st.integers(1, 60)))]
    deliveries = data.draw(st.lists(st.lists(st.sampled_from(events), min_size=1, max_size=8), max_size=30))
    for batch in deliveries:
        sealing.seal(core, ORG, batch)
    for event in events:
        sealing.seal(core, ORG, [event])
    assert sorted(chain(core)) == [event.id for event in events]


class Dying:
    """A store whose answer is lost before or after its nth transaction."""

    def __init__(self, store: MemoryStore, number: int, *, after: bool) -> None:
        self._store, self._number, self._after = store, number, after
        self._count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def transact(self, actions: Sequence[Action]) -> Outcome:
        self._count += 1
        if self._count != self._number:
            return self._store.transact(actions)
        if self._after:
            self._store.transact(actions)
        raise StoreUnavailable("died")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_sealer_that_dies_at_any_write_leaves_a_chain_that_the_next_goes_on_with(
    core: Core, number: int, after: bool
) -> None:
    events = [an_event(core, number) for number in range(SEGMENT_EVENTS_MAX * 2 + 5)]
    dying = replace(core, store=Dying(core.store, number, after=after))  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailable):
        sealing.seal(dying, ORG, events)
    chain(core)
    sealing.seal(core, ORG, events)
    assert chain(core) == [event.id for event in events]


class Raced:
    """A store in which somebody else does something right after the head was read, once."""

    def __init__(self, store: Store, meanwhile: Callable[[], object]) -> None:
        self._store, self._meanwhile = store, [meanwhile]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, record: Any, key: Any) -> Any:
        found = self._store.get(record, key)
        if self._meanwhile:
            self._meanwhile.pop()()
        return found


@pytest.mark.parametrize("sealed_before", [0, 2])
def test_of_two_sealers_that_append_at_once_one_looks_again(core: Core, sealed_before: int) -> None:
    events = [an_event(core, number) for number in range(8)]
    sealing.seal(core, ORG, events[:sealed_before])
    raced = replace(core, store=Raced(core.store, lambda: sealing.seal(core, ORG, events[4:])))
    assert sealing.seal(raced, ORG, events[:6]).events == 4 - sealed_before
    assert sorted(chain(core)) == [event.id for event in events]


def test_an_old_event_is_found_by_halving_and_not_by_reading_everything(core: Core) -> None:
    """One that is delivered again a day later must not be sealed twice, nor cost a walk through the day."""
    store = core.store
    assert isinstance(store, MemoryStore)
    for number in range(1, 1000, 2):
        sealing.seal(core, ORG, [an_event(core, number)])
    head = store.get(ChainHead, ChainHead.key_of(ORG))
    assert head is not None
    with store.ledger.measure() as cost:
        assert sealing.sealed_among(store, head, [an_event(core, 201).id]) == {an_event(core, 201).id: 100}
    assert cost.trips <= 12
    late = an_event(core, 200)
    assert sealing.seal(core, ORG, [late]).events == 1
    assert sealing.seal(core, ORG, [late, an_event(core, 1)]).events == 0
    assert chain(core)[-1] == late.id


def test_a_place_is_found_in_one_read(core: Core) -> None:
    for start in (0, 3, 4):
        sealing.seal(core, ORG, [an_event(core, number) for number in range(start, (3, 0, 0, 4, 9)[start])])
    for place in range(9):
        segment = sealing.segment_with(core.store, ORG, place)
        assert isinstance(segment, Segment)
        assert segment.events[place - segment.first] == an_event(core, place).id
    assert sealing.segment_with(core.store, ORG, 9) is None


def test_the_lag_is_that_of_what_was_new(core: Core) -> None:
    """After a restart the stream gave sealed events again, and a lag of minutes was told that nobody had waited."""
    old, new = an_event(core, 1), an_event(core, 101)
    core.clock.sleep(2.0)
    assert sealing.seal(core, ORG, [old]).lag_seconds == 1.0
    core.clock.sleep(102.0)
    assert sealing.seal(core, ORG, [old, new]) == sealing.Sealed(1, 3.0)
    assert sealing.seal(core, ORG, [old, new]) == sealing.Sealed(0, 0.0)
