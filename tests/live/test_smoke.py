"""A deployed installation, used as a client uses it: what no emulator shows. `make test-live` runs it.

    DIFFERENTLY_LIVE_URL    where the API is: `make -s api-url`
    DIFFERENTLY_LIVE_KEY    a tenant's key; what it makes is deleted at the end
    DIFFERENTLY_LIVE_LONG   set to 1 to also hold connections for minutes

Without the first two everything here is skipped, and says so. It costs a few sandbox minutes on whatever pool takes it.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator

import httpx
import pytest

pytestmark = pytest.mark.live
URL, KEY = os.environ.get("DIFFERENTLY_LIVE_URL"), os.environ.get("DIFFERENTLY_LIVE_KEY")
READY_SECONDS = 240
STREAM_BEGINS_SECONDS_MAX = 5.0
"""From the command's first line to us: more means that something on the way collects answers."""
QUIET_SECONDS = 330
"""Longer than the gateway holds a connection on which nothing comes."""


@pytest.fixture(scope="module")
def api() -> Iterator[httpx.Client]:
    if not URL or not KEY:
        pytest.skip("no installation to try: set DIFFERENTLY_LIVE_URL and DIFFERENTLY_LIVE_KEY")
    with httpx.Client(base_url=URL, headers={"Authorization": f"Bearer {KEY}"}, timeout=300.0) as client:
        yield client


@pytest.fixture(scope="module")
def sandbox(api: httpx.Client) -> Iterator[str]:
    made = api.post("/v1/sandboxes", json={"ttlSeconds": 1800, "labels": {"purpose": "smoke"}})
    assert made.status_code == 202, made.text
    identity = str(made.json()["id"])
    try:
        found = api.get(f"/v1/sandboxes/{identity}/wait", params={"for": "running", "timeoutSeconds": READY_SECONDS})
        assert found.json().get("status") == "running", found.text
        yield identity
    finally:
        assert api.delete(f"/v1/sandboxes/{identity}").status_code == 202


@pytest.fixture
def long_ones() -> None:
    if os.environ.get("DIFFERENTLY_LIVE_LONG") != "1":
        pytest.skip("it takes minutes: set DIFFERENTLY_LIVE_LONG=1")


def test_it_is_there_and_asks_for_a_key(api: httpx.Client) -> None:
    assert httpx.get(f"{URL}/healthz").json() == {"status": "ok"}
    refused = httpx.get(f"{URL}/v1/sandboxes")
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthenticated")


def test_a_command_is_a_result(api: httpx.Client, sandbox: str) -> None:
    body = {"command": "cat; echo oops >&2; exit 3", "stdin": "hello"}
    ran = api.post(f"/v1/sandboxes/{sandbox}/exec", json=body).json()
    assert (ran["exitCode"], ran["stdout"], ran["stderr"]) == (3, "hello", "oops\n")


def test_lines_leave_while_the_command_runs(api: httpx.Client, sandbox: str) -> None:
    """aws.md, live check 1: the first byte, through the real gateway."""
    began = time.monotonic()
    body = {"command": "echo first; sleep 20; echo last"}
    with api.stream("POST", f"/v1/sandboxes/{sandbox}/exec", params={"stream": "true"}, json=body) as answer:
        lines = (json.loads(line) for line in answer.iter_lines() if line)
        assert next(lines)["data"] == "first\n"
        assert time.monotonic() - began < STREAM_BEGINS_SECONDS_MAX + 10
        assert [line.get("exitCode") for line in lines][-1] == 0
    assert time.monotonic() - began >= 20


@pytest.mark.usefixtures("long_ones")
@pytest.mark.timeout(QUIET_SECONDS + 120)
def test_a_quiet_command_keeps_its_connection(api: httpx.Client, sandbox: str) -> None:
    """The gateway ends a connection on which nothing comes for five minutes."""
    body = {"command": f"sleep {QUIET_SECONDS}; echo done", "timeoutSeconds": QUIET_SECONDS + 60}
    with api.stream("POST", f"/v1/sandboxes/{sandbox}/exec", params={"stream": "true"}, json=body) as answer:
        said = [json.loads(line) for line in answer.iter_lines() if line]
    assert [line.get("data") for line in said] == ["done\n", None]


def test_a_client_that_leaves_ends_nothing(api: httpx.Client, sandbox: str) -> None:
    body = {"command": "rm -f left; echo on; sleep 5; touch left"}
    with api.stream("POST", f"/v1/sandboxes/{sandbox}/exec", params={"stream": "true"}, json=body) as answer:
        assert next(line for line in answer.iter_lines() if line)
    ran = api.post(f"/v1/sandboxes/{sandbox}/exec", json={"command": "for n in $(seq 30); do [ -e left ] && exit 0; "
                                                          "sleep 1; done; exit 1"})  # fmt: skip
    assert ran.json()["exitCode"] == 0


@pytest.mark.parametrize("size", [1, 3 * 1024 * 1024], ids=["small", "3 MiB"])
def test_files_go_both_ways(api: httpx.Client, sandbox: str, size: int) -> None:
    content = os.urandom(size)
    where = f"/v1/sandboxes/{sandbox}/files/content"
    assert api.put(where, params={"path": "in.bin"}, content=content).status_code == 200
    assert api.get(where, params={"path": "in.bin"}).content == content


def test_a_large_file_goes_by_the_bucket(api: httpx.Client, sandbox: str) -> None:
    """S3 itself refuses another length and another hash; a small size keeps this cheap."""
    content = os.urandom(8 * 1024 * 1024)
    announced = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    begun = api.post(f"/v1/sandboxes/{sandbox}/files/uploads", json=announced).json()
    for other in (content[:-1], content[1:] + b"x"):
        assert httpx.put(begun["url"], headers=begun["headers"], content=other, timeout=120).status_code in {400, 403}
    sent = httpx.put(begun["url"], headers=begun["headers"], content=content, timeout=120)
    assert sent.status_code == 200, sent.text
    where, query = f"/v1/sandboxes/{sandbox}/files/content", {"path": "large.bin", "upload": begun["id"]}
    assert api.put(where, params=query).status_code == 200
    assert api.get(where, params={"path": "large.bin"}).content == content


def test_a_job_is_read_from_where_it_was_left(api: httpx.Client, sandbox: str) -> None:
    job = api.post(f"/v1/sandboxes/{sandbox}/jobs", json={"command": "echo one; sleep 2; echo two"}).json()["id"]
    read, offset, ended = "", 0, False
    end = time.monotonic() + 60
    while not ended and time.monotonic() < end:
        query: dict[str, str | int] = {"stream": "stdout", "offset": offset}
        piece = api.get(f"/v1/sandboxes/{sandbox}/jobs/{job}/output", params=query).json()
        read, offset, ended = read + piece["data"], piece["next"], piece["ended"]
        if not ended:
            time.sleep(1)
    assert read == "one\ntwo\n"
