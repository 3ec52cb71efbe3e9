"""What the service says of itself, and what every answer carries."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from differently_api.app import App
from differently_api.route import Group
from differently_api.routes import ROUTES
from tests.support.api import World, reply_of

EVENTS = Path(__file__).parents[2] / "events"
CONSOLE = "https://console.example"


@pytest.mark.parametrize(
    ("path", "body"),
    [("/healthz", {"status": "ok"}), ("/version", {"version": "1.2.3", "api": "v1"})],
)
def test_the_service_answers_without_a_key_and_without_the_store(memory: World, path: str, body: Any) -> None:
    with memory.store.ledger.measure() as cost:  # type: ignore[attr-defined]
        reply = memory.call("GET", path)
    assert (reply.status, reply.json()) == (200, body)
    assert cost.trips == 0


def test_every_answer_forbids_guessing_its_type_and_keeping_it(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    for path in ("/healthz", "/v1/sandboxes", f"/v1/sandboxes/{sandbox}/wait", "/nothing"):
        reply = memory.call("GET", path, token=tenant.token)
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Cache-Control"] == "no-store"
        assert reply.headers["X-Request-Id"]


def test_no_origin_may_read_answers_by_default(memory: World) -> None:
    for method in ("GET", "OPTIONS"):
        reply = memory.call(method, "/healthz", headers={"Origin": CONSOLE})
        assert not any(name.startswith("Access-Control") for name in reply.headers)


def test_a_listed_origin_may_and_others_may_not(memory: World) -> None:
    app = App(memory.core, memory.peppers, allowed_origins=frozenset({CONSOLE}))

    def ask(method: str, origin: str, path: str = "/v1/sandboxes") -> Any:
        return reply_of(app.serve(memory.event(method, path, headers={"origin": origin})))

    assert ask("GET", CONSOLE).headers["Access-Control-Allow-Origin"] == CONSOLE
    assert ask("GET", CONSOLE).headers["Vary"] == "Origin"
    preflight = ask("OPTIONS", CONSOLE)
    assert (preflight.status, preflight.raw) == (204, b"")
    assert preflight.headers["Access-Control-Allow-Methods"] == "GET, POST"
    assert "Authorization" in preflight.headers["Access-Control-Allow-Headers"]
    for other in ("https://console.example.evil", "null", "", "http://console.example", CONSOLE + "/"):
        assert not any(name.startswith("Access-Control") for name in ask("GET", other).headers)
        assert not any(name.startswith("Access-Control") for name in ask("OPTIONS", other).headers)
    assert ask("OPTIONS", CONSOLE, "/nothing").status == 404


def test_every_answer_of_the_streamed_function_has_a_body(memory: World) -> None:
    """A streamed integration has no answer without one."""
    assert all(route.answer is not None or route.media is not None for route in ROUTES if route.group is Group.DATA)
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    reply = memory.call("DELETE", f"/v1/sandboxes/{sandbox}/files/content?path=a", token=tenant.token)
    assert reply.raw


def request_lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.__dict__ for record in caplog.records if record.message == "request"]


def test_one_line_for_each_request_with_who_what_and_how_long(memory: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tenant = memory.tenant()
    key = "key_" + tenant.token.split("_")[1]
    made = memory.call("POST", "/v1/sandboxes", {}, token=tenant.token).json()["id"]
    memory.settle()
    memory.call("GET", f"/v1/sandboxes/{made}", token=tenant.token)
    memory.call("GET", "/v1/sandboxes/nothing", token=tenant.token)
    created, read, missing = request_lines(caplog)[-3:]
    assert created["route"] == "/v1/sandboxes"
    assert (created["method"], created["status"], created["sandboxId"]) == ("POST", 202, made)
    assert (created["keyId"], created["org"], created["durationMs"]) == (key, tenant.org, 0.0)
    assert (read["route"], read["sandboxId"]) == ("/v1/sandboxes/{id}", made)
    assert (missing["status"], missing["code"], missing["sandboxId"]) == (404, "not_found", None)


@pytest.mark.parametrize(("leave", "how"), [(False, "whole"), (True, "left")])
def test_a_streamed_answer_is_logged_when_it_is_over(
    memory: World, caplog: pytest.LogCaptureFixture, leave: bool, how: str
) -> None:
    caplog.set_level(logging.INFO)
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    caplog.clear()
    reply = memory.call("POST", f"/v1/sandboxes/{sandbox}/exec?stream=true", {"command": "x"}, token=tenant.token)
    assert request_lines(caplog) == []
    if leave:
        reply.chunks.close()  # type: ignore[attr-defined]
    else:
        assert list(reply.chunks)
    reply.chunks.close()  # type: ignore[attr-defined]
    (line,) = request_lines(caplog)
    assert (line["streamed"], line["status"], line["sandboxId"]) == (how, 200, sandbox)


@pytest.mark.parametrize("path", sorted(EVENTS.glob("api_*.json")), ids=lambda path: path.stem)
def test_recorded_events_are_served(memory: World, path: Path) -> None:
    """Events as the gateway sends them, placeholders filled in."""
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    text = path.read_text(encoding="utf-8")
    fill = {
        "{token}": tenant.token, "{key}": "key_" + tenant.token.split("_")[1], "{org}": tenant.org,
        "{project}": tenant.project, "{sandbox}": sandbox,
    }  # fmt: skip
    for name, value in fill.items():
        text = text.replace(name, value)
    recorded = json.loads(text)
    if recorded.get("type") == "REQUEST":
        assert memory.app.authorizer(recorded)["principalId"] == fill["{key}"]
        return
    reply = reply_of(memory.app.serve(recorded))
    assert reply.status in (200, 202), reply.raw
    assert reply.headers["X-Request-Id"] == recorded["requestContext"]["requestId"]
