"""What a person does first, over HTTP, on a control plane as `make run` starts it."""

from __future__ import annotations

import json
import os
import stat

import httpx
import pytest

from tests.e2e.plane import Client, Plane, at_once, until


def test_the_start_says_how_to_go_on(plane: Plane) -> None:
    access = plane.access
    for told in (access["url"], access["tenantKey"], access["operatorKey"], str(plane.data_dir / "dev.json"), "curl"):
        assert told in plane.output
    assert plane.seconds_to_start < 20


@pytest.mark.parametrize("name", ["dev.json", "pepper", "emulator.json", "run.json"])
def test_files_with_secrets_are_the_owners_alone(plane: Plane, name: str) -> None:
    assert stat.S_IMODE((plane.data_dir / name).stat().st_mode) == 0o600


def test_healthz_needs_no_key(plane: Plane) -> None:
    answer = httpx.get(f"{plane.access['url']}/healthz", trust_env=False)
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_calls_without_a_key_are_refused(plane: Plane) -> None:
    answer = httpx.post(f"{plane.access['url']}/v1/sandboxes", trust_env=False)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "unauthenticated"


def test_a_sandbox_from_an_empty_body_to_its_end(client: Client) -> None:
    created = client.http.post("/v1/sandboxes")
    assert created.status_code == 202, created.text
    sandbox = created.json()["id"]
    client.wait(sandbox)
    ran = client.exec(sandbox, "cat; echo oops >&2; exit 7", stdin="hello")
    assert (ran["exitCode"], ran["stdout"], ran["stderr"]) == (7, "hello", "oops\n")
    client.delete(sandbox)
    assert client.wait(sandbox, "terminated")["statusReason"]["code"] == "deleted"
    refused = client.http.post(f"/v1/sandboxes/{sandbox}/exec", json={"command": "true"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "invalid_state")


def test_lines_of_a_streamed_command_arrive_as_they_are_printed(client: Client) -> None:
    """The command prints its second line only after we have told it that the first one is here."""
    sandbox = client.running()
    command = "echo one; until [ -e go ]; do sleep 0.05; done; echo two; exit 3"
    with client.http.stream(
        "POST", f"/v1/sandboxes/{sandbox}/exec", params={"stream": "true"}, json={"command": command}
    ) as answer:
        lines = (json.loads(line) for line in answer.iter_lines() if line)
        assert next(lines) == {"stream": "stdout", "data": "one\n"}
        client.write(sandbox, "go", b"")
        assert next(lines) == {"stream": "stdout", "data": "two\n"}
        assert next(lines)["exitCode"] == 3
        assert next(lines, None) is None


def test_three_mebibytes_of_random_bytes_go_both_ways_unchanged(client: Client) -> None:
    sandbox = client.running()
    content = os.urandom(3 * 1024 * 1024)
    client.write(sandbox, "deep/er/random.bin", content)
    assert client.read(sandbox, "deep/er/random.bin") == content
    assert client.exec(sandbox, "wc -c < deep/er/random.bin")["stdout"].strip() == str(len(content))


def test_six_mebibytes_go_by_an_upload_and_come_back(client: Client) -> None:
    sandbox = client.running()
    content = os.urandom(6 * 1024 * 1024)
    refused = client.http.put(f"/v1/sandboxes/{sandbox}/files/content", params={"path": "a"}, content=content)
    assert refused.status_code == 413
    assert "files/uploads" in refused.json()["error"]["message"]
    client.upload(sandbox, "data/a.bin", content)
    assert client.exec(sandbox, "wc -c < data/a.bin")["stdout"].strip() == str(len(content))
    assert client.read(sandbox, "data/a.bin") == content


def test_a_job_runs_in_the_background_until_it_is_stopped(client: Client) -> None:
    sandbox = client.running()
    jobs = f"/v1/sandboxes/{sandbox}/jobs"
    started = client.http.post(jobs, json={"id": "first", "command": "echo begun; exec sleep 600"})
    assert started.status_code == 202, started.text
    output = f"{jobs}/first/output"
    until(lambda: client.http.get(output).json()["data"] == "begun\n", "the job's output")
    assert client.http.get(f"{jobs}/first").json()["state"] == "running"
    assert client.http.delete(f"{jobs}/first").json()["state"] == "stopped"
    rest = client.http.get(output, params={"offset": 6}).json()
    assert (rest["data"], rest["ended"]) == ("", True)


def test_sixty_four_creates_at_once_with_one_key_make_one_sandbox(plane: Plane, client: Client) -> None:
    headers = {"Idempotency-Key": "the-same-for-all"}
    answers = at_once(64, lambda _: client.http.post("/v1/sandboxes", json={}, headers=headers), range(64))
    assert {answer.status_code for answer in answers} == {200, 202}
    assert sum(answer.status_code == 202 for answer in answers) == 1
    (sandbox,) = {answer.json()["id"] for answer in answers}
    replays = [answer for answer in answers if answer.status_code == 200]
    assert all(answer.headers["Idempotent-Replayed"] == "true" for answer in replays)
    client.wait(sandbox)
    assert [name for name in plane.instances() if sandbox in name] == [sandbox]


def test_a_second_start_names_the_first_and_leaves_it_alone(plane: Plane) -> None:
    second = Plane(plane.data_dir)
    second.launch()
    assert second.ended() == 1
    assert f"already running at {plane.access['url']}" in second.output
    assert httpx.get(f"{plane.access['url']}/healthz", trust_env=False).status_code == 200
    assert plane.emulator_lives()


@pytest.mark.parametrize(
    "target",
    [
        "//v1/orgs", "/v1//orgs", "/v1/orgs/", "/v1/./orgs", "/v1/sandboxes/../orgs", "/v1%2Forgs", "/v1/%6Frgs",
        "/V1/ORGS", "/v1/orgs;x=1", "/v1/orgs%00", "/v1\\orgs", "/v1/sandboxes/..%2F..%2Forgs", "/v1/orgs#x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "TRACE"])
def test_no_path_trick_gets_past_the_gateway(plane: Plane, method: str, target: str) -> None:
    """With a tenant's key, none of these is the operators' list of organizations, and none is a fault of ours."""
    key = plane.access["tenantKey"]
    request = (
        f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\r\n"
    )
    answer = plane.raw(request.encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert int(head.split()[1]) in {400, 403, 404, 405}, answer
    if method != "HEAD":
        assert json.loads(body)["error"]["code"] in {"invalid_request", "forbidden", "not_found", "method_not_allowed"}


def test_a_foreign_web_page_is_refused(plane: Plane, client: Client) -> None:
    for header in ({"Host": "sandboxes.example"}, {"Origin": "https://sandboxes.example"}):
        answer = client.http.get("/healthz", headers=header)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
        assert not any(name.lower().startswith("access-control-") for name in answer.headers)
