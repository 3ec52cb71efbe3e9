"""Stopping and starting on this machine: what a stop keeps and what it ends."""

from __future__ import annotations

from tests.e2e.plane import Client


def test_a_stop_keeps_the_files_and_ends_what_runs_and_a_start_goes_on(client: Client) -> None:
    sandbox = client.running()
    client.write(sandbox, "note", b"still here")
    client.exec(sandbox, "sleep 600 > /dev/null 2>&1 & echo $! > pid")

    client.move(sandbox, "stop")
    client.wait(sandbox, "stopped")
    client.move(sandbox, "start")
    client.wait(sandbox)

    assert client.read(sandbox, "note") == b"still here"
    ended = client.exec(sandbox, "! test -e /proc/$(cat pid) || grep '^State:.[ZX]' /proc/$(cat pid)/status")
    assert ended["exitCode"] == 0, ended
    client.delete(sandbox)


def test_what_this_machine_cannot_do_is_told(client: Client) -> None:
    sandbox = client.running()
    refused = client.http.post(f"/v1/sandboxes/{sandbox}/pause")
    assert (refused.status_code, refused.json()["error"]["code"]) == (501, "unsupported_operation")
    assert refused.json()["error"]["details"]["reason"] == "memory_is_not_kept"
    client.delete(sandbox)
