"""A webhook end to end: from the API by way of the log's stream to a receiver in a process of its own."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.plane import Client, until
from tests.support.receiver import ReceiverProcess


def test_a_life_is_told_to_a_receiver_that_is_killed_meanwhile(client: Client, tmp_path: Path) -> None:
    """Issue 7, done when: killed and restarted in the test, it misses nothing and can drop duplicates by id."""
    receiver = ReceiverProcess(tmp_path)
    try:
        hook = client.made("/v1/webhooks", {"url": receiver.start(), "events": ["sandbox.*"]})
        receiver.knows(hook["secret"])
        sandbox = client.running()
        until(lambda: len(types(receiver, sandbox)) == 2, "the first events")
        receiver.kill()
        client.delete(sandbox)
        client.gone(sandbox)
        path = f"/v1/webhooks/{hook['id']}/deliveries"
        until(lambda: client.http.get(path, params={"status": "pending"}).json()["items"], "deliveries that wait")
        receiver.start()
        until(lambda: len(types(receiver, sandbox)) == 4, "the last events")
        assert sorted(types(receiver, sandbox)) == ["created", "ended", "running", "terminating"]
        (end,) = [event for event in receiver.events() if event["type"] == "sandbox.ended"]
        assert end["data"]["reason"] == {"code": "deleted", "source": "caller", "cause": "user"}
        assert client.http.delete(f"/v1/webhooks/{hook['id']}").status_code == 204
    finally:
        receiver.kill()


def types(receiver: ReceiverProcess, sandbox: str) -> list[str]:
    found = [event for event in receiver.events() if event["subject"] == sandbox]
    return [event["type"].removeprefix("sandbox.") for event in found]
