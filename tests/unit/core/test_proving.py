"""Proofs convince a verifier that shares no code with us, and our own look finds what was touched."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from differently_core.errors import InvalidRequest, NotFound
from differently_core.model.audit import ChainHead, Segment
from differently_core.model.event import Event
from differently_core.operations import comparing, proving, sealing
from differently_core.operations.core import Core
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Absent, Delete, Put
from tests.support.verifier import load
from tests.support.world import World
from tests.unit.core.test_sealing import ORG, an_event, chain

verifier = load()


@pytest.fixture
def core() -> Core:
    return World().core


def sealed(core: Core, *sizes: int) -> list[Event]:
    """Events in the log, appended in segments of these sizes."""
    events = [an_event(core, number) for number in range(sum(sizes))]
    for event in events:
        core.store.transact([Put(event, (Absent(),), "event")])
    start = 0
    for size in sizes:
        sealing.seal(core, ORG, events[start : start + size])
        start += size
    return events


def raw(text: str) -> bytes:
    return base64.b64decode(text)


@pytest.mark.parametrize("sizes", [(1,), (2, 1), (7,), (1,) * 9, (3, 5, 1, 8, 2, 14)])
def test_every_event_is_proved_in_every_tree_that_holds_it(core: Core, sizes: tuple[int, ...]) -> None:
    events = sealed(core, *sizes)
    for size in range(1, len(events) + 1):
        for place in range(size):
            proof = proving.include(core, ORG, events[place].id, size)
            path = [raw(step) for step in proof.path]
            leaf, root = raw(proof.leaf), raw(proof.root)
            assert proof.place == place
            assert len(path) <= (size - 1).bit_length()
            assert verifier.verify_inclusion(leaf, place, size, path, root)
            assert not verifier.verify_inclusion(leaf, place + 1, size, path, root) or size == 1
            assert not verifier.verify_inclusion(root, place, size, path, root) or size == 1


@pytest.mark.parametrize("sizes", [(1,), (6, 3), (1,) * 8, (3, 5, 1, 8)])
def test_every_earlier_tree_is_proved_to_be_the_beginning_of_a_later_one(core: Core, sizes: tuple[int, ...]) -> None:
    events = sealed(core, *sizes)
    for new in range(1, len(events) + 1):
        for old in range(1, new + 1):
            proof = proving.grow(core, ORG, old, new)
            path = [raw(step) for step in proof.path]
            roots = raw(proof.old_root), raw(proof.new_root)
            assert verifier.verify_consistency(old, new, *roots, path)
            assert old == new or not verifier.verify_consistency(old, new, roots[1], roots[0], path)


def test_a_proof_reads_a_segment_for_each_hash(core: Core) -> None:
    events = sealed(core, *(1,) * 600)
    store = core.store
    assert isinstance(store, MemoryStore)
    with store.ledger.measure() as cost:
        proving.include(core, ORG, events[300].id)
    assert cost.trips <= 40


def test_what_cannot_be_proved_is_told(core: Core) -> None:
    events = sealed(core, 3)
    with pytest.raises(NotFound, match="no sealed event"):
        proving.include(core, ORG, an_event(core, 9).id)
    with pytest.raises(InvalidRequest, match="size must be from 3 to 3"):
        proving.include(core, ORG, events[2].id, 2)
    with pytest.raises(InvalidRequest, match="1 to 3"):
        proving.grow(core, ORG, 3, 4)
    with pytest.raises(NotFound):
        proving.include(core, "org_2", events[0].id)


# Our own look


def touched(core: Core, event: Event, **facts: Any) -> None:
    core.store.transact([Put(event.with_(**facts), (), "event")])


def test_an_untouched_log_is_intact_in_parts_of_any_size(core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proving, "CHECKED_MAX", 10)
    sealed(core, *(3,) * 20)
    start, looks = 0, 0
    while start < 60:
        checked = proving.check(core, ORG, start)
        assert checked.problem is None
        assert checked.end > start
        start, looks = checked.end, looks + 1
    assert (start, looks) == (60, 5)
    assert proving.check(core, ORG, 60).problem is None
    assert proving.check(core, ORG, 31).problem is None
    assert proving.check(core, "org_2").size == 0


def test_a_changed_or_missing_event_is_found_at_its_place(core: Core) -> None:
    events = sealed(core, 4, 4)
    touched(core, events[5], actor="key_2")
    problem = proving.check(core, ORG).problem
    assert problem == proving.Problem(5, "the event is not as it was sealed")
    core.store.transact([Delete(Event, events[2].key(), "event")])
    assert proving.check(core, ORG).problem == proving.Problem(2, "the event is missing")


def test_a_segment_that_was_put_in_the_place_of_another_is_found(core: Core) -> None:
    events = sealed(core, 4, 4)
    touched(core, events[1], actor="key_2")
    found = sealing.segment_with(core.store, ORG, 0)
    assert found is not None
    forged = found.with_(hashes=(found.hashes[0], sealing.as_text(bytes(32)), *found.hashes[2:]))
    core.store.transact([Put(forged, (), "segment")])
    assert proving.check(core, ORG).problem is not None


def test_a_chain_that_was_cut_is_found(core: Core) -> None:
    sealed(core, 4, 4)
    last = sealing.segment_with(core.store, ORG, 7)
    assert last is not None
    core.store.transact([Delete(Segment, last.key(), "segment")])
    problem = proving.check(core, ORG).problem
    assert problem == proving.Problem(4, "the chain's head is not its end")
    head = proving.head_of(core, ORG)
    core.store.transact([Put(last, (), "segment"), Put(head.with_(size=4, frontier=last.frontier), (), "head")])
    assert proving.check(core, ORG).problem == proving.Problem(4, "the chain's head is not its end")


# The comparison


def stored(core: Core, *numbers: int) -> list[Event]:
    events = [an_event(core, number) for number in numbers]
    for event in events:
        core.store.transact([Put(event, (Absent(),), "event")])
    return events


def test_what_the_stream_lost_is_sealed_when_it_is_old_enough() -> None:
    world = World()
    core = world.core
    events = stored(core, *range(10))
    sealing.seal(core, ORG, events[6:8])
    assert comparing.compare(core, ORG).missed == 0
    world.clock.advance(130)
    assert comparing.compare(core, ORG) == comparing.Compared(events=10, missed=8)
    assert sorted(chain(core)) == [event.id for event in events]
    assert comparing.compare(core, ORG).missed == 0


def test_an_event_that_is_committed_late_with_an_older_id_is_found() -> None:
    world = World()
    core = world.core
    early = an_event(core, 0)
    late = stored(core, 30)
    world.clock.advance(130 + 30)
    assert comparing.compare(core, ORG).missed == 1
    core.store.transact([Put(early, (Absent(),), "event")])
    world.clock.advance(600)
    assert comparing.compare(core, ORG).missed == 1
    assert chain(core) == [late[0].id, early.id]


def test_what_was_compared_is_not_read_again() -> None:
    world = World()
    core = world.core
    stored(core, *range(250))
    world.clock.advance(7200)
    assert comparing.compare(core, ORG).missed == 250
    store = core.store
    assert isinstance(store, MemoryStore)
    with store.ledger.measure() as cost:
        assert comparing.compare(core, ORG) == comparing.Compared(0, 0)
    assert cost.calls == ["GetItem", "Query"]


def test_every_organization_has_its_turn_once_in_all_shards() -> None:
    world = World()
    stored(world.core, 1)
    sealing.seal(world.core, ORG, stored(world.core, 2))
    every = list(comparing.organizations(world.core))
    assert sorted(every) == sorted({ORG, world.org.id, "operators"})
    assert sorted(org for shard in range(16) for org in comparing.organizations(world.core, shard)) == sorted(every)
    assert all(ChainHead.shard_of(org).startswith("CHAINS#") for org in every)
