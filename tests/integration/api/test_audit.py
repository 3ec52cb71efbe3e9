"""The audit log through the API: every event once in either direction, nobody else's, and proofs that hold.

features.md: newest first paging gives all events once, the newest included (a past fault of others).
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from differently_core.model.event import Event
from differently_core.model.record import Table
from differently_core.operations import history, sealing
from differently_scheduler import sealer
from tests.support.api import Tenant, World
from tests.support.verifier import load

verifier = load()


def happen(world: World, tenant: Tenant, count: int) -> list[str]:
    """Changes of a sandbox, an event each; the sandbox's id for all."""
    world.clock.advance(1)
    made = world.call("POST", "/v1/sandboxes", {}, token=tenant.token).json()
    for number in range(count - 1):
        world.clock.advance(1)
        changed = world.call("PATCH", f"/v1/sandboxes/{made['id']}", {"ttlSeconds": 4000 + number}, token=tenant.token)
        assert changed.status == 200, changed.raw
    return [made["id"]] * count


def walk(world: World, token: str, query: str = "", between: Any = None) -> list[Any]:
    found: list[Any] = []
    cursor = ""
    for _ in range(200):
        page = world.call("GET", f"/v1/audit-events?{query}{cursor}", token=token)
        assert page.status == 200, page.raw
        found += page.json()["items"]
        if "nextCursor" not in page.json():
            return found
        cursor = f"&cursor={page.json()['nextCursor']}"
        if between is not None:
            between()
    raise AssertionError("the pages never end")


def of(world: World, tenant: Tenant) -> list[str]:
    """The ids of the organization's events."""
    return [row.id for row in world.store.query(Table.LOG, f"EVT#{tenant.org}").rows if isinstance(row, Event)]


def test_both_directions_give_every_event_once(world: World, acme: Tenant) -> None:
    happen(world, acme, 7)
    world.seal()
    happen(world, acme, 4)
    world.seal()
    expected = of(world, acme)
    oldest = walk(world, acme.token, "limit=3")
    assert [event["id"] for event in oldest] == expected
    assert [event["seq"] for event in oldest] == list(range(len(expected)))
    newest = walk(world, acme.token, "order=desc&limit=3")
    assert newest == oldest[::-1]


def test_events_that_arrive_during_a_walk_neither_hide_nor_double_any(memory: World) -> None:
    """S002 number 85: the newest events could never be reached."""
    acme = memory.tenant("acme")
    happen(memory, acme, 30)
    memory.seal()
    before = of(memory, acme)

    def arrive() -> None:
        happen(memory, acme, 3)
        memory.seal()

    down = [event["id"] for event in walk(memory, acme.token, "order=desc&limit=4", arrive)]
    assert down == before[::-1]
    up = [event["id"] for event in walk(memory, acme.token, "limit=50")]
    assert up == of(memory, acme)


def test_pages_go_on_through_segments_of_any_size(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "SCANNED_MAX", 5)
    acme = memory.tenant("acme")
    for count in (1, 1, 6, 2, 9, 1):
        happen(memory, acme, count)
        memory.seal()
    ids = [event["id"] for event in walk(memory, acme.token, "limit=2")]
    assert ids == of(memory, acme)
    assert [event["id"] for event in walk(memory, acme.token, "limit=7&order=desc")] == ids[::-1]
    rare = walk(memory, acme.token, "action=sandbox.create")
    assert len(rare) == 6


def test_filters_leave_out_what_does_not_fit(memory: World) -> None:
    acme = memory.tenant("acme")
    (first, *_) = happen(memory, acme, 3)
    memory.clock.advance(3600)
    middle = memory.clock.now()
    memory.clock.advance(3600)
    (second, *_) = happen(memory, acme, 2)
    memory.seal()
    every = walk(memory, acme.token)
    for order in ("asc", "desc"):
        by = f"order={order}"
        assert {event["target"] for event in walk(memory, acme.token, f"{by}&target={second}")} == {second}
        changes = walk(memory, acme.token, f"{by}&action=sandbox.*")
        assert {event["action"] for event in changes} >= {"sandbox.create", "sandbox.update"}
        assert len(walk(memory, acme.token, f"{by}&action=sandbox.create")) == 2
        actor = changes[0]["actor"]
        found = walk(memory, acme.token, f"{by}&actor={actor}")
        assert sorted(event["seq"] for event in found) == [e["seq"] for e in every if e["actor"] == actor]
        at = middle.strftime("%Y-%m-%dT%H:%M:%SZ")
        late, early = walk(memory, acme.token, f"{by}&from={at}"), walk(memory, acme.token, f"{by}&to={at}")
        assert {event["target"] for event in late} == {second}
        assert sorted(event["seq"] for event in [*late, *early]) == [event["seq"] for event in every]
        assert first in {event["target"] for event in early}


def test_what_is_not_sealed_yet_is_counted_and_not_listed(world: World, acme: Tenant) -> None:
    world.seal()
    happen(world, acme, 2)
    page = world.call("GET", "/v1/audit-events", token=acme.token).json()
    assert page["unsealed"] == len(of(world, acme)) - len(page["items"]) == 2
    world.seal()
    assert world.call("GET", "/v1/audit-events", token=acme.token).json()["unsealed"] == 0


def test_before_seq_begins_a_page_below(memory: World) -> None:
    acme = memory.tenant("acme")
    happen(memory, acme, 6)
    memory.seal()
    page = memory.call("GET", "/v1/audit-events?order=desc&beforeSeq=3&limit=2", token=acme.token).json()
    assert [event["seq"] for event in page["items"]] == [2, 1]
    assert memory.call("GET", "/v1/audit-events?beforeSeq=3", token=acme.token).code == "invalid_request"
    refused = memory.call("GET", "/v1/audit-events?from=2026-01-01T00:00:00", token=acme.token)
    assert refused.json()["error"]["details"]["field"] == "from"


def test_a_tenant_sees_its_own_organization_and_no_trace_of_another(world: World, acme: Tenant) -> None:
    """reliability.md I11."""
    other = world.tenant("other")
    happen(world, acme, 2)
    happen(world, other, 2)
    world.seal()
    assert {event["org"] for event in walk(world, acme.token)} == {acme.org}
    assert world.call("GET", f"/v1/audit-events?orgId={acme.org}", token=acme.token).status == 200
    foreign = of(world, other)[0]
    for path in ("", "/verify", "/consistency", "/export", f"/{foreign}/proof"):
        query = f"orgId={other.org}&fromSize=1" if path == "/consistency" else f"orgId={other.org}"
        refused = world.call("GET", f"/v1/audit-events{path}?{query}", token=acme.token)
        assert (refused.status, refused.code) == (404, "not_found"), path
    assert world.call("GET", f"/v1/audit-events/{foreign}/proof", token=acme.token).status == 404
    cursor = world.call("GET", "/v1/audit-events?limit=1", token=other.token).json()["nextCursor"]
    stolen = world.call("GET", f"/v1/audit-events?limit=1&cursor={cursor}", token=acme.token)
    assert stolen.code == "invalid_request"


def test_an_operator_sees_everybody_s_one_after_the_other(memory: World) -> None:
    tenants = [memory.tenant(name) for name in ("one", "two", "three")]
    for tenant in tenants:
        happen(memory, tenant, 3)
    memory.seal()
    for order in ("asc", "desc"):
        every = walk(memory, memory.operator, f"limit=2&order={order}")
        assert {event["org"] for event in every} == {"operators", *(tenant.org for tenant in tenants)}
        assert len({event["id"] for event in every}) == len(every)
    one = walk(memory, memory.operator, f"orgId={tenants[1].org}")
    assert [event["id"] for event in one] == of(memory, tenants[1])
    unnamed = memory.call("GET", "/v1/audit-events/verify", token=memory.operator)
    assert unnamed.json()["error"]["details"]["field"] == "orgId"


def test_verify_tells_an_intact_log_from_one_that_was_touched(world: World, acme: Tenant) -> None:
    happen(world, acme, 5)
    world.seal()
    answer = world.call("GET", "/v1/audit-events/verify", token=acme.token).json()
    assert (answer["intact"], answer["toSeq"]) == (True, answer["size"])
    assert world.call("GET", "/v1/audit-events/verify?fromSeq=99", token=acme.token).code == "invalid_request"
    place = answer["size"] - 2
    found = sealing.segment_with(world.store, acme.org, place)
    assert found is not None
    event = world.store.get(Event, Event.key_of(acme.org, found.events[place - found.first]))
    assert event is not None
    from differently_core.store.ports import Put

    world.store.transact([Put(event.with_(actor="key_other"), (), "event")])
    answer = world.call("GET", "/v1/audit-events/verify", token=acme.token).json()
    assert (answer["intact"], answer["problem"]) == (False, f"{place}: the event is not as it was sealed")


def test_an_event_from_the_list_is_proved_to_who_trusts_only_a_root(world: World, acme: Tenant) -> None:
    happen(world, acme, 9)
    world.seal()
    for event in walk(world, acme.token):
        proof = world.call("GET", f"/v1/audit-events/{event['id']}/proof", token=acme.token).json()
        text = verifier.canonical({name: value for name, value in event.items() if name not in ("seq", "hash")})
        leaf = verifier.hashlib.sha256(b"\x00" + text).digest()
        assert base64.b64encode(leaf).decode() == event["hash"] == proof["leafHash"]
        path = [base64.b64decode(step) for step in proof["path"]]
        root = base64.b64decode(proof["rootHash"])
        assert verifier.verify_inclusion(leaf, proof["seq"], proof["treeSize"], path, root)
    grown = world.call("GET", "/v1/audit-events/consistency?fromSize=4", token=acme.token).json()
    roots = (base64.b64decode(grown[name]) for name in ("fromRoot", "toRoot"))
    path = [base64.b64decode(step) for step in grown["path"]]
    assert verifier.verify_consistency(4, grown["toSize"], *roots, path)


def test_an_export_comes_to_the_root_that_the_api_tells(world: World, acme: Tenant) -> None:
    happen(world, acme, 12)
    world.seal()
    exported = world.call("GET", "/v1/audit-events/export", token=acme.token)
    assert exported.headers["Content-Type"] == "application/x-ndjson"
    lines = exported.raw.splitlines(keepends=True)
    told = world.call("GET", "/v1/audit-events/verify", token=acme.token).json()
    root = verifier.Root(f"log\n{told['size']}\n{told['root']}\n", "root")
    assert verifier.verify(lines, [root]).size == told["size"]
    part = world.call("GET", "/v1/audit-events/export?fromSeq=3&toSeq=5", token=acme.token).lines()
    assert [json.dumps(line) for line in part[:-1]] == [json.dumps(json.loads(line)) for line in lines[3:5]]
    assert (part[-1]["export"]["fromSeq"], part[-1]["export"]["toSeq"]) == (3, 5)


def test_an_export_is_verified_by_a_root_that_was_published_before(world: World, acme: Tenant) -> None:
    happen(world, acme, 4)
    world.seal()
    sealer.handle(world.core, sealer.Compare(everything=True).event())
    happen(world, acme, 3)
    world.seal()
    sealer.handle(world.core, sealer.Compare(everything=True).event())
    page = world.call("GET", "/v1/audit-events/roots?limit=1", token=acme.token).json()
    older = world.call("GET", f"/v1/audit-events/roots?limit=1&cursor={page['nextCursor']}", token=acme.token).json()
    texts = [page["items"][0]["checkpoint"], older["items"][0]["checkpoint"]]
    lines = world.call("GET", "/v1/audit-events/export", token=acme.token).raw.splitlines(keepends=True)
    kept = [verifier.Root(text, "root") for text in texts]
    assert kept[0].size > kept[1].size
    assert verifier.verify(lines, kept).size == kept[0].size
    with pytest.raises(verifier.Wrong):
        verifier.verify([line.replace(b"sandbox.create", b"sandbox.delete") for line in lines], kept[1:])
