"""Roots: what a chain came to at some moment, put where nobody can change it, each naming the one before.

A root is published when its chain has grown, and only when the chain still begins with the tree of the root before:
a chain that was rewritten gets no new root, and rings. It is kept outside first and then in the log; whoever dies in
between leaves a root outside that is as true as the next.
"""

from __future__ import annotations

import logging

from ..audit.checkpoint import checkpoint, digest
from ..model.audit import ChainHead, Root
from ..model.record import Table
from ..store.ports import Absent, Put
from .core import Core
from .proving import head_of, root_at, root_of

log = logging.getLogger(__name__)


def publish(core: Core, org: str) -> Root | None:
    """The new root; None when the chain has not grown, or contradicts its last root. Raises for faults of the store."""
    head = head_of(core, org)
    last = newest(core, org)
    if head.size <= (last.size if last is not None else 0):
        if last is not None and head.size < last.size:
            _contradicted(org, last, "the chain is shorter")
        return None
    if last is not None and root_at(core, org, last.size) != last.hash:
        _contradicted(org, last, "the chain began otherwise")
        return None
    root = _root(core, head, last)
    core.archive.keep(f"{org}/{Root.place(root.size)}", root.note)
    core.store.transact([Put(root, (Absent(),), "root")])
    log.info("root published", extra={"org": org, "size": root.size})
    return root


def newest(core: Core, org: str) -> Root | None:
    rows, _ = listed(core, org, None, 1)
    return rows[0] if rows else None


def listed(core: Core, org: str, after: str | None, limit: int) -> tuple[list[Root], str | None]:
    """Newest first."""
    page = core.store.query(Table.LOG, Root.partition(org), after=after, limit=limit, reverse=True)
    return [row for row in page.rows if isinstance(row, Root)], page.next


def _root(core: Core, head: ChainHead, last: Root | None) -> Root:
    previous = digest(last.note) if last is not None else ""
    origin = f"differently.dev/{core.catalog.installation().id}/{head.org}"
    value = root_of(head)
    note = checkpoint(origin, head.size, value, previous)
    return Root(org=head.org, size=head.size, hash=value, at=core.clock.now(), note=note)


def _contradicted(org: str, last: Root, why: str) -> None:
    log.error("root contradicted", extra={"org": org, "size": last.size, "why": why})
