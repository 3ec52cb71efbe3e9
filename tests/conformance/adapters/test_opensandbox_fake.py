"""The stand-in against what the released server 1.1.1 and a real execd were recorded to answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conformance.adapters.opensandbox_fake import FakeOpenSandbox, answer

RECORDINGS = Path(__file__).parent / "opensandbox_fake" / "recordings"
A_BIN = ({"path": "/tmp/d/e/a.bin", "mode": 600}, bytes(range(256)))
UPLOADS = [(True, *A_BIN), (False, *A_BIN), (True, {"path": "/tmp/r.txt", "mode": 644}, b"foo bar")]
"""What was sent where the recording only says that it was a stream: with or without a file name on the metadata."""


def exchanges(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RECORDINGS / f"{name}.jsonl").read_text().splitlines()]


class Replay:
    """Sends recorded requests to the stand-in, with its ids in the place of those of the recording."""

    def __init__(self, fake: FakeOpenSandbox, client: httpx.Client) -> None:
        self.fake = fake
        self.client = client
        self.ids: dict[str, str] = {}
        self.execd = ""
        self.uploads = iter(UPLOADS)

    def send(self, request: dict[str, Any]) -> httpx.Response:
        path, body = self._ours(request["path"]), self._ours(request["body"])
        headers = {name: value for name, value in request["headers"].items() if name != "content-type"}
        url = self.fake.url + path
        if path.startswith("/proxy/"):
            url = f"http://{self.execd}{path.removeprefix('/proxy/44772')}"
        body = body.replace('"sleep 30","timeout":1500', '"sleep 30","timeout":300').replace("sleep 4;", "sleep 0.5;")
        body = body.replace("sleep 1; echo bg", "sleep 0.1; echo bg")
        if body == "<stream>":
            named, metadata, data = next(self.uploads)
            part = ("metadata", json.dumps(metadata), "application/json") if named else (None, json.dumps(metadata))
            files = {"metadata": part, "file": ("file", data)}
            return self.client.post(url, headers=headers, files=files)
        told = self.client.request(request["method"], url, headers=headers, content=body.encode() or None)
        while "/command/status/" in path and '"running":true' in told.text:  # the recorder had waited, too
            told = self.client.get(url)
        return told

    def learn(self, recorded: str, told: str) -> None:
        """Ids, wherever both answers have one; and where execd is."""
        try:
            before, now = json.loads(recorded), json.loads(told)
        except ValueError:
            found = [re.search('"type":"init","text":"([^"]+)"', text) for text in (recorded, told)]
            if all(found):
                self.ids[found[0][1]] = found[1][1]  # type: ignore[index]
            return
        for name in ("id", "session_id"):
            if isinstance(before, dict) and name in before:
                self.ids[before[name]] = now[name]
        if isinstance(now, dict) and "/proxy/44772" in now.get("endpoint", "") and "sandboxes" not in now["endpoint"]:
            self.execd = now["endpoint"]

    def _ours(self, text: str) -> str:
        for theirs, ours in self.ids.items():
            text = text.replace(theirs, ours)
        return re.sub("expires=179[0-9]{7}", "expires=4000000000", text).replace("2026-11-29T", "2999-11-29T")


def shape(text: str, content_type: str) -> Any:
    """What a client can rely on: the fields of JSON and their types, the kinds and texts of events, else the text."""
    if "event-stream" in content_type:
        events = [json.loads(line) for line in text.splitlines() if line]
        kinds = [(event["type"], set(event)) for event in events if event["type"] != "ping"]
        return {stream: [kind for kind in kinds if kind[0] == stream] for stream in ("stdout", "stderr")}, [
            kind for kind in kinds if kind[0] not in {"stdout", "stderr"}
        ]
    return _shape(json.loads(text)) if "json" in content_type and text else text.strip()


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        # The input of a validation error and free labels are the request's; paths name what was asked for.
        return {
            name: "" if name in {"input", "ctx", "metadata", "env"} else _shape(inner) for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_shape(inner) for inner in value]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def code(text: str) -> object:
    try:
        told = json.loads(text)
    except ValueError:
        return None
    return told.get("code") if isinstance(told, dict) else None


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False, timeout=30) as client:
        yield client


@pytest.mark.parametrize("runtime", ["docker", "kubernetes"])
def test_every_recorded_answer_has_the_same_status_code_and_shape(
    runtime: str, tmp_path: Path, client: httpx.Client
) -> None:
    fake = FakeOpenSandbox(tmp_path, runtime=runtime, grace_seconds=0.0, ping_seconds=0.3, snapshot_reads=2)
    fake.pools["p1"] = {
        "name": "p1", "createdAt": "2026-11-29T12:26:31Z",
        "capacitySpec": {"bufferMax": 1, "bufferMin": 0, "poolMax": 2, "poolMin": 0},
    }  # fmt: skip
    if runtime == "kubernetes":  # there was no pod behind the stand-in of its cluster
        fake.expect("POST", "/snapshots$", answer(409, "SNAPSHOT::RUNTIME_PREFLIGHT_FAILED"))
    replay, differences = Replay(fake, client), []
    try:
        for number, exchange in enumerate(exchanges(f"{runtime}-runtime"), 1):
            request, recorded = exchange["request"], exchange["response"]
            told = replay.send(request)
            replay.learn(recorded["body"], told.text)
            kind = recorded["headers"].get("content-type", "")
            pairs = [(recorded["status"], told.status_code), (code(recorded["body"]), code(told.text))]
            if "octet-stream" not in kind and not recorded["status"] >= 400:
                pairs.append((shape(recorded["body"], kind), shape(told.text, told.headers.get("content-type", ""))))
            differences += [f"{number} {request['method']} {request['path']}: {a} != {b}" for a, b in pairs if a != b]
    finally:
        fake.close()
    assert differences == []


def test_the_recorded_calls_of_the_sdk_are_all_understood(tmp_path: Path, client: httpx.Client) -> None:
    fake = FakeOpenSandbox(tmp_path, api_key="k", grace_seconds=0.0)
    made = ""
    statuses = {}
    try:
        for line in (RECORDINGS / "sdk-1.1.1-calls.jsonl").read_text().splitlines():
            call = json.loads(line)
            if "MARK" in call["p"] or "templateId" in call["b"]:
                continue
            path = call["p"].replace("sb-1", made)
            if path.startswith("/port/"):
                path = path.replace("/port/", f"/box/{made}/proxy/", 1)
            body = call["b"].replace("snap-1", next(iter(fake.snapshots), "")).replace("2026-11-29", "2999-11-29")
            headers = {k: v for k, v in call["h"].items() if k.lower() not in {"content-length", "transfer-encoding"}}
            told = client.request(call["m"], fake.url + path, headers=headers, content=body.encode() or None)
            made = told.json()["id"] if (call["m"], path) == ("POST", "/v1/sandboxes") else made
            statuses[f"{call['m']} {call['p']}"] = told.status_code
    finally:
        fake.close()
    assert {name: status for name, status in statuses.items() if status >= 400} == {}


def test_a_stream_is_held_after_its_last_event(tmp_path: Path, client: httpx.Client) -> None:
    fake = FakeOpenSandbox(tmp_path, grace_seconds=0.2)
    try:
        box = fake.plant({})
        with client.stream("POST", f"{fake.url}/box/{box.id}/proxy/44772/command", json={"command": "true"}) as told:
            seen = [chunk for chunk in told.iter_text() if chunk]
        assert "execution_complete" in seen[-1]
    finally:
        fake.close()
