"""Usage through the API: who sees what, in which form, and what a spreadsheet is told."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from differently_api.routes.usage import COLUMNS, UsageLine, table
from differently_core.operations import rollups
from tests.support.api import Tenant, World

PRICES = {"cpuHour": 0.036, "memoryGiBHour": 0.0072, "currency": "EUR"}
RUN = {"resources": {"cpu": 2, "memoryMiB": 1024}, "labels": {"team": "red"}}


@pytest.fixture
def billed(world: World, acme: Tenant) -> World:
    world.pool("priced", costModel=PRICES)
    return world


def used(world: World, tenant: Tenant, seconds: float, **body: Any) -> None:
    sandbox = world.running(tenant, {**RUN, "placement": {"allowedPools": ["priced"]}, **body})
    world.clock.advance(seconds)
    world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=tenant.token)
    world.settle()


def items(world: World, token: str, query: str = "") -> list[Any]:
    reply = world.call("GET", f"/v1/usage{query}", token=token)
    assert reply.status == 200, reply.raw
    return list(reply.json()["items"])


def test_a_tenant_sees_what_its_project_used(billed: World, acme: Tenant) -> None:
    used(billed, acme, 100)
    used(billed, billed.tenant("sibling", org=acme.org), 50)
    used(billed, billed.tenant("stranger"), 25)
    expected = {
        "group": acme.project, "sandboxSeconds": 100.0, "cpuSeconds": 200.0, "memoryGiBSeconds": 100.0,
        "keptSeconds": 0.0, "estimatedCost": 0.0022, "currency": "EUR",
    }  # fmt: skip
    assert items(billed, acme.token) == [expected]
    assert items(billed, acme.token, "?groupBy=label:team") == [{**expected, "group": "red"}]
    assert items(billed, acme.token, "?groupBy=pool") == [{**expected, "group": "priced"}]
    assert items(billed, acme.token, "?groupBy=day") == [{**expected, "group": "2026-01-01"}]
    assert items(billed, acme.token, "?from=2026-01-02&to=2026-01-03") == []
    answer = billed.call("GET", "/v1/usage", token=acme.token).json()
    assert (answer["from"], answer["to"], answer["groupBy"]) == ("2026-01-01", "2026-01-02", "project")


def test_an_operator_sees_everybody_or_whom_it_names(billed: World, acme: Tenant) -> None:
    sibling, stranger = billed.tenant("sibling", org=acme.org), billed.tenant("stranger")
    for number, tenant in enumerate((acme, sibling, stranger), start=1):
        used(billed, tenant, 100 * number)

    def seconds(query: str) -> dict[str, float]:
        return {entry["group"]: entry["sandboxSeconds"] for entry in items(billed, billed.operator, query)}

    assert seconds("?groupBy=org") == {acme.org: 300.0, stranger.org: 300.0}
    assert seconds(f"?orgId={acme.org}") == {acme.project: 100.0, sibling.project: 200.0}
    assert seconds(f"?projectId={sibling.project}") == {sibling.project: 200.0}
    billed.clock.advance(7200)
    assert rollups.roll_all(billed.core) == 3
    assert seconds("?groupBy=org") == {acme.org: 300.0, stranger.org: 300.0}


def test_another_s_organization_is_not_there(billed: World, acme: Tenant) -> None:
    stranger = billed.tenant("stranger")
    for query in (f"orgId={stranger.org}", f"projectId={stranger.project}", "projectId=proj_nothing"):
        assert billed.call("GET", f"/v1/usage?{query}", token=acme.token).status == 404
    for query in ("orgId=org_nothing", f"projectId={acme.project}&orgId={stranger.org}"):
        assert billed.call("GET", f"/v1/usage?{query}", token=billed.operator).status == 404


def test_a_pool_without_prices_has_a_cost_of_null(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    world.clock.advance(10)
    (line,) = items(world, acme.token)
    assert (line["sandboxSeconds"], line["estimatedCost"], line["currency"]) == (10.0, None, None)
    assert sandbox


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("groupBy=colour", "groupBy"),
        ("groupBy=label:", "groupBy"),
        ("from=2026-01-02&to=2026-01-02", "to"),
        ("from=2024-01-01&to=2026-01-01", "from"),
        ("from=yesterday", "from"),
        ("format=xml", "format"),
        ("cursor=abc&groupBy=pool", "cursor"),
    ],
)
def test_a_question_that_makes_no_sense_names_its_field(world: World, acme: Tenant, query: str, field: str) -> None:
    refused = world.call("GET", f"/v1/usage?{query}", token=world.operator)
    assert refused.status == 400
    assert refused.json()["error"]["details"]["field"] == field


def test_the_table_holds_the_same_figures(billed: World, acme: Tenant) -> None:
    used(billed, acme, 100)
    reply = billed.call("GET", "/v1/usage?format=csv&groupBy=label:team", token=acme.token)
    assert reply.headers["Content-Type"].startswith("text/csv")
    rows = list(csv.reader(io.StringIO(reply.raw.decode())))
    assert rows == [list(COLUMNS), ["red", "100", "200", "100", "0", "0.0022", "EUR"]]


@pytest.mark.parametrize("name", ["=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", "\tx", "\r=1", 'a",=1', "two\r\n=lines"])
def test_no_name_becomes_a_formula(name: str) -> None:
    """OWASP, CSV injection: a cell that begins with one of these is calculated when the table is opened."""
    line = UsageLine(
        group=name, sandbox_seconds=1.5, cpu_seconds=0, memory_gib_seconds=0, kept_seconds=0, estimated_cost=None,
        currency=None,
    )  # fmt: skip
    _, row = csv.reader(io.StringIO(table([line]), newline=""))
    assert row[1:] == ["1.5", "0", "0", "0", "", ""]
    assert not row[0].startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert row[0].lstrip("'") == name
