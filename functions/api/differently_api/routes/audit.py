"""The audit log: what happened, and proofs that it is what was sealed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field

from differently_core.audit.canonical import document
from differently_core.errors import InvalidRequest, NotFound
from differently_core.model.record import Wire
from differently_core.operations import history, proving, roots
from differently_core.operations.core import Caller
from differently_core.operations.cursors import unseal

from ..moments import Moment
from ..route import Access, Answer, Call, Group, Method, NoBody, Route
from ..streams import first_then
from .commands import NDJSON
from .paging import LIMIT_DEFAULT, LIMIT_MAX, next_cursor

Seq = Annotated[int, Field(ge=0, le=10**15 - 1)]
Text = Annotated[str, Field(min_length=1, max_length=256)]


class Order(StrEnum):
    ASC = "asc"
    DESC = "desc"


class AuditEvent(Wire):
    """All but `seq` and `hash` is the event; its canonical JSON without these two is what the hash is of."""

    seq: int
    """Its place in its organization's chain, from 0; the index of its leaf."""
    hash: str
    """Of the leaf, in base64: SHA-256 of a zero byte and the event's canonical JSON."""
    id: str
    org: str
    at: str
    actor: str
    """A key's id, or `system:` and the part that acted by itself."""
    request_id: str
    """The request that caused it."""
    action: str
    target: str
    project: str | None = None
    pool: str | None = None
    before: str | None = None
    after: str | None = None
    details: dict[str, str | int | bool | None] | None = None

    @classmethod
    def of(cls, placed: history.Placed) -> Self:
        facts = {"seq": placed.place, "hash": placed.hash, **document(placed.event)}
        return cls.model_validate(facts)


class AuditPage(Wire):
    items: list[AuditEvent]
    unsealed: int | None = None
    """Events that were written and are not sealed yet, counted up to 100; they are not in the list. Normally some of
    the last second. Absent where all organizations are listed."""
    next_cursor: str | None = None
    """Absent on the last page. A page may be short, even empty, and still have one."""


class OrgQuery(Wire):
    org_id: Text | None = None
    """For operators: whose events. A tenant's key sees its own organization's. Events of operators that are about no
    tenant are those of `operators`."""


class AuditQuery(OrgQuery):
    order: Order = Order.ASC
    """`asc`: oldest first, in the order in which events were sealed. `desc`: newest first."""
    before_seq: Seq | None = None
    """Only with `order=desc`: events with a smaller `seq`."""
    actor: Text | None = None
    action: Text | None = None
    """Exact, or the beginning of one and `*`, such as `sandbox.*`."""
    target: Text | None = None
    since: Annotated[Moment | None, Field(alias="from")] = None
    to: Moment | None = None
    limit: Annotated[int, Field(ge=1, le=LIMIT_MAX)] = LIMIT_DEFAULT
    cursor: str | None = None

    def wanted(self) -> history.Wanted:
        return history.Wanted(self.actor, self.action, self.target, self.since, self.to)


class VerifyQuery(OrgQuery):
    from_seq: Seq = 0


class VerifyView(Wire):
    org: str
    intact: bool
    """Whether every event from `fromSeq` up to `toSeq` is there and as it was sealed, and the chain goes on."""
    size: int
    """Events that are sealed."""
    root: str
    """Of the tree over them, in base64."""
    from_seq: int
    to_seq: int
    """The first event that was not looked at; go on with `fromSeq` of this until it is `size`."""
    problem: str | None = None


class ProofQuery(OrgQuery):
    size: Annotated[int | None, Field(ge=1)] = None
    """Prove it in the tree of so many events, such as that of a root; the whole chain where left out."""


class ProofView(Wire):
    """An inclusion proof of RFC 6962; hashes in base64."""

    event: str
    seq: int
    leaf_hash: str
    tree_size: int
    root_hash: str
    path: list[str]
    """What the leaf's hash is combined with, from the leaf up."""


class ConsistencyQuery(OrgQuery):
    from_size: Annotated[int, Field(ge=1)]
    to_size: Annotated[int | None, Field(ge=1)] = None
    """The whole chain where left out."""


class ConsistencyView(Wire):
    """A consistency proof of RFC 6962; hashes in base64."""

    from_size: int
    to_size: int
    from_root: str
    to_root: str
    path: list[str]


class RootsQuery(OrgQuery):
    limit: Annotated[int, Field(ge=1, le=LIMIT_MAX)] = LIMIT_DEFAULT
    cursor: str | None = None


class RootView(Wire):
    size: int
    hash: str
    at: datetime
    checkpoint: str
    """The text to keep: a checkpoint of C2SP, whose fourth line names the one before by its digest."""


class RootPage(Wire):
    items: list[RootView]
    next_cursor: str | None = None


class ExportQuery(OrgQuery):
    from_seq: Seq = 0
    to_seq: Seq | None = None
    """The first event that is not wanted; all that are sealed where left out."""


def list_audit_events(call: Call[NoBody, AuditQuery]) -> AuditPage:
    query, core = call.query, call.core
    one = _org_of(call.caller, query)
    if query.before_seq is not None and (query.order is Order.ASC or one is None):
        raise InvalidRequest("beforeSeq goes with order=desc, and for an operator with orgId.", field="beforeSeq")
    filters = [str(query.order), one or "*", query.actor, query.action, query.target, str(query.since), str(query.to)]
    bound = ["audit", *(text or "" for text in filters)]
    org, place = _position(unseal(core, bound, query.cursor) if query.cursor is not None else None)
    org = org or one or history.next_chain(core.store, None)
    if org is None:
        return AuditPage(items=[])
    found, further = _page(call, org, place if place is not None else query.before_seq)
    onward = f"{org}|{further}" if further is not None else None
    if onward is None and one is None and (following := history.next_chain(core.store, org)) is not None:
        onward = f"{following}|"
    return AuditPage(
        items=[AuditEvent.of(entry) for entry in found],
        unsealed=history.unsealed(core, org) if one is not None else None,
        next_cursor=next_cursor(core, onward, *bound),
    )


def _page(call: Call[NoBody, AuditQuery], org: str, place: int | None) -> tuple[list[history.Placed], int | None]:
    query = call.query
    if query.order is Order.DESC:
        return history.newest_first(call.core, org, query.wanted(), place, query.limit)
    return history.oldest_first(call.core, org, query.wanted(), place or 0, query.limit)


def _position(text: str | None) -> tuple[str | None, int | None]:
    org, _, place = (text or "").partition("|")
    return org or None, int(place) if place else None


def verify_audit_events(call: Call[NoBody, VerifyQuery]) -> VerifyView:
    org = _one_org(call.caller, call.query)
    checked = proving.check(call.core, org, call.query.from_seq)
    problem = checked.problem
    return VerifyView(
        org=org, intact=problem is None, size=checked.size, root=checked.root, from_seq=checked.start,
        to_seq=checked.end, problem=f"{problem.place}: {problem.what}" if problem is not None else None,
    )  # fmt: skip


def prove_audit_event(call: Call[NoBody, ProofQuery]) -> ProofView:
    event = call.params["event"]
    proof = proving.include(call.core, _one_org(call.caller, call.query), event, call.query.size)
    return ProofView(
        event=event, seq=proof.place, leaf_hash=proof.leaf, tree_size=proof.size, root_hash=proof.root,
        path=list(proof.path),
    )  # fmt: skip


def prove_audit_growth(call: Call[NoBody, ConsistencyQuery]) -> ConsistencyView:
    proof = proving.grow(call.core, _one_org(call.caller, call.query), call.query.from_size, call.query.to_size)
    return ConsistencyView(
        from_size=proof.old, to_size=proof.new, from_root=proof.old_root, to_root=proof.new_root, path=list(proof.path)
    )


def list_audit_roots(call: Call[NoBody, RootsQuery]) -> RootPage:
    org = _one_org(call.caller, call.query)
    after = None if call.query.cursor is None else unseal(call.core, ["roots", org], call.query.cursor)
    found, position = roots.listed(call.core, org, after, call.query.limit)
    return RootPage(
        items=[RootView(size=root.size, hash=root.hash, at=root.at, checkpoint=root.note) for root in found],
        next_cursor=next_cursor(call.core, position, "roots", org),
    )


def export_audit_events(call: Call[NoBody, ExportQuery]) -> Answer:
    org = _one_org(call.caller, call.query)
    lines = first_then(_lines(call, org))
    return Answer(200, lines, {"Content-Type": NDJSON, "Content-Disposition": 'attachment; filename="audit.ndjson"'})


def _lines(call: Call[NoBody, ExportQuery], org: str) -> Iterator[bytes]:
    """The last line tells the tree's size and root, so that a stream that was cut is known by having none."""
    start = call.query.from_seq
    head = proving.head_of(call.core, org)
    end = head.size if call.query.to_seq is None else min(call.query.to_seq, head.size)
    for place, text in history.exported(call.core, org, start, end):
        yield (text if text is not None else _json({"missing": {"seq": place}})) + b"\n"
    yield _json({"export": {"org": org, "fromSeq": start, "toSeq": max(start, end), "size": head.size,
                            "root": proving.root_of(head)}}) + b"\n"  # fmt: skip


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _org_of(caller: Caller, query: OrgQuery) -> str | None:
    """Whose events are asked for; None for an operator who names nobody. Another's look like they did not exist."""
    if caller.operator:
        return query.org_id
    if caller.org is None or query.org_id not in (None, caller.org):
        raise NotFound("There is no such organization.")
    return caller.org


def _one_org(caller: Caller, query: OrgQuery) -> str:
    org = _org_of(caller, query)
    if org is None:
        raise InvalidRequest("Name the organization: an operator key belongs to none.", field="orgId")
    return org


ROUTES = (
    Route(
        Method.GET, "/v1/audit-events", Group.CONTROL, Access.ANY, list_audit_events,
        "List what happened", NoBody, AuditQuery, AuditPage, errors=(NotFound,),
        description="Every change of state is an event, written by the change itself. The list is in the order in "
        "which events were sealed, so a walk in either direction gives each of them once, whatever happens meanwhile. "
        "An operator sees one organization with `orgId`, else all, one after the other.",
    ),
    Route(
        Method.GET, "/v1/audit-events/verify", Group.CONTROL, Access.ANY, verify_audit_events,
        "Compare events with their chain", NoBody, VerifyQuery, VerifyView, errors=(NotFound,),
        description="Makes the hashes of some 2,000 events again and compares them with what was sealed. This is our "
        "own look; [the verifier](../how-to/verify-the-audit-log.md) needs none of us.",
    ),
    Route(
        Method.GET, "/v1/audit-events/roots", Group.CONTROL, Access.ANY, list_audit_roots,
        "List the roots that were published", NoBody, RootsQuery, RootPage, errors=(NotFound,),
        description="Newest first. A log that has grown gets a root every sixteen minutes or so. Where it is deployed "
        "each is in a bucket as well, under a lock that no function can lift.",
    ),
    Route(
        Method.GET, "/v1/audit-events/consistency", Group.CONTROL, Access.ANY, prove_audit_growth,
        "Prove that the log only grew", NoBody, ConsistencyQuery, ConsistencyView, errors=(NotFound,),
    ),
    Route(
        Method.GET, "/v1/audit-events/{event}/proof", Group.CONTROL, Access.ANY, prove_audit_event,
        "Prove that an event is in the log", NoBody, ProofQuery, ProofView, errors=(NotFound,),
    ),
    Route(
        Method.GET, "/v1/audit-events/export", Group.DATA, Access.ANY, export_audit_events,
        "Export the log", NoBody, ExportQuery, media=NDJSON, errors=(NotFound,),
        description="One event a line, in its canonical form, in the order of their places; the last line has `export` "
        "with the size and root of the tree. A stream without that line was cut.",
    ),
)  # fmt: skip
