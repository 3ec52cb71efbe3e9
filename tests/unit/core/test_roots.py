"""A root is published when its chain grew, names the one before, and is never put on a chain that was rewritten."""

from __future__ import annotations

import base64
import logging
from dataclasses import replace

import pytest

from differently_core.audit.checkpoint import checkpoint, digest
from differently_core.model.audit import ChainHead, Root
from differently_core.operations import proving, roots, sealing
from differently_core.operations.core import Core
from differently_core.store.archive import ArchiveUnavailable
from differently_core.store.ports import Put
from tests.support.verifier import load
from tests.support.world import World
from tests.unit.core.test_proving import sealed
from tests.unit.core.test_sealing import ORG, an_event

verifier = load()


class Kept:
    """An archive in memory, in which nothing is ever changed."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.failing = False

    def keep(self, name: str, text: str) -> None:
        if self.failing:
            raise ArchiveUnavailable("out of reach")
        self.texts.setdefault(name, text)


@pytest.fixture
def archive() -> Kept:
    return Kept()


@pytest.fixture
def core(archive: Kept) -> Core:
    return replace(World().core, archive=archive)


def grow(core: Core, start: int, count: int) -> None:
    sealing.seal(core, ORG, [an_event(core, number) for number in range(start, start + count)])


def test_a_root_is_a_checkpoint_that_names_the_one_before(core: Core, archive: Kept) -> None:
    assert roots.publish(core, ORG) is None
    grow(core, 0, 5)
    first = roots.publish(core, ORG)
    assert first is not None
    assert roots.publish(core, ORG) is None
    grow(core, 5, 4)
    second = roots.publish(core, ORG)
    assert second is not None
    origin = f"differently.dev/{core.catalog.installation().id}/{ORG}"
    assert first.note == f"{origin}\n5\n{first.hash}\n"
    assert second.note == f"{origin}\n9\n{second.hash}\nprevious {digest(first.note)}\n"
    assert second.hash == proving.root_of(proving.head_of(core, ORG))
    assert list(archive.texts.values()) == [first.note, second.note]
    assert roots.listed(core, ORG, None, 10)[0] == [second, first]
    parsed = verifier.Root(second.note, "root")
    assert (parsed.origin, parsed.size, parsed.hash) == (origin, 9, base64.b64decode(second.hash))


def test_a_root_that_the_archive_does_not_take_is_published_later(core: Core, archive: Kept) -> None:
    grow(core, 0, 3)
    archive.failing = True
    with pytest.raises(ArchiveUnavailable):
        roots.publish(core, ORG)
    assert roots.newest(core, ORG) is None
    archive.failing = False
    assert roots.publish(core, ORG) is not None


def test_one_that_died_after_the_archive_is_followed_by_a_root_as_true(core: Core, archive: Kept) -> None:
    grow(core, 0, 3)
    archive.keep(f"{ORG}/{Root.place(3)}", checkpoint("kept before", 3, "x", ""))
    grow(core, 3, 1)
    root = roots.publish(core, ORG)
    assert root is not None
    assert archive.texts[f"{ORG}/{Root.place(4)}"] == root.note


def test_a_chain_that_was_rewritten_gets_no_root(core: Core, caplog: pytest.LogCaptureFixture) -> None:
    sealed(core, 4, 2)
    assert roots.publish(core, ORG) is not None
    segment = sealing.segment_with(core.store, ORG, 0)
    assert segment is not None
    core.store.transact([Put(segment.with_(hashes=(sealing.as_text(bytes(32)), *segment.hashes[1:])), (), "segment")])
    last = sealing.segment_with(core.store, ORG, 5)
    assert last is not None
    forged = sealing.frontier_of(0, ()).extend(
        sealing.as_bytes(text) for text in (sealing.as_text(bytes(32)), *segment.hashes[1:])
    )
    texts = tuple(sealing.as_text(value) for value in forged.hashes)
    core.store.transact([Put(last.with_(frontier=texts), (), "segment")])
    grow(core, 10, 1)
    with caplog.at_level(logging.ERROR):
        assert roots.publish(core, ORG) is None
    assert "root contradicted" in caplog.messages
    assert roots.newest(core, ORG).size == 6  # type: ignore[union-attr]


def test_a_chain_that_was_put_back_gets_no_root(core: Core, caplog: pytest.LogCaptureFixture) -> None:
    grow(core, 0, 4)
    grow(core, 4, 2)
    roots.publish(core, ORG)
    last = sealing.segment_with(core.store, ORG, 5)
    assert last is not None
    head = ChainHead(org=ORG, size=4, frontier=last.frontier, newest=last.newest)
    core.store.transact([Put(head, (), "head")])
    with caplog.at_level(logging.ERROR):
        assert roots.publish(core, ORG) is None
    assert "root contradicted" in caplog.messages
