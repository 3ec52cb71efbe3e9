"""What functions send each other is what the receivers read; what cannot be sent is lost and fails nothing."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from differently_aws import environment
from differently_aws.messages import Messages
from differently_reconciler.reconcile import Reconcile
from differently_scheduler import deliver, dispatch
from differently_scheduler.messages import WORK, Cleanup, LookAtPort, Settle, Step, StepSnapshot, read
from tests.support.functions import ENVIRON

SANDBOX = "sbx_" + "0" * 26
SNAPSHOT = "snap_" + "0" * 26
WEBHOOK = "whk_" + "0" * 26


class Recorded:
    """Clients that write down each call, or raise."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._error = error

    def client(self, service: str) -> Any:
        return self

    def __getattr__(self, operation: str) -> Any:
        def call(**given: Any) -> None:
            self.calls.append((operation, given))
            if self._error is not None:
                raise self._error

        return call

    def payload(self) -> Any:
        ((_, given),) = self.calls
        return json.loads(given["Payload"])


def messages(clients: Recorded, **changes: str) -> Messages:
    return Messages(environment.read({**ENVIRON, **changes}), clients)  # type: ignore[arg-type]


def test_the_worker_reads_what_it_is_sent() -> None:
    for send, expected in (
        (lambda made: made.worker(SANDBOX), Step(sandbox=SANDBOX)),
        (lambda made: made.cleanup(SANDBOX, 2), Cleanup(sandbox=SANDBOX, attempt=2)),
        (lambda made: made.snapshot(SNAPSHOT), StepSnapshot(snapshot=SNAPSHOT)),
        (lambda made: made.port(SANDBOX, 3000), LookAtPort(sandbox=SANDBOX, port=3000)),
    ):
        clients = Recorded()
        send(messages(clients))
        assert clients.calls[0][1]["InvocationType"] == "Event"
        assert clients.calls[0][1]["FunctionName"] == ENVIRON["WORKER_FUNCTION"]
        assert read(WORK, clients.payload()) == expected


def test_the_reconciler_reads_what_it_is_sent() -> None:
    clients = Recorded()
    messages(clients).reconcile("pool-1")
    assert Reconcile.model_validate(clients.payload()) == Reconcile(pool="pool-1")


def test_dispatch_reads_what_is_queued_for_it() -> None:
    clients = Recorded()
    messages(clients).dispatch()
    ((operation, given),) = clients.calls
    assert (operation, given["QueueUrl"]) == ("send_message", ENVIRON["DISPATCH_QUEUE_URL"])
    assert dispatch._poison({"messageId": "1", "body": given["MessageBody"]}) is None


def test_deliver_reads_what_is_queued_for_it() -> None:
    clients = Recorded()
    messages(clients).deliver(WEBHOOK)
    ((operation, given),) = clients.calls
    assert (operation, given["QueueUrl"]) == ("send_message", ENVIRON["DELIVER_QUEUE_URL"])
    (record,) = deliver.batch(WEBHOOK)["Records"]
    assert json.loads(given["MessageBody"]) == json.loads(record["body"])


def test_the_workflow_is_started_under_the_name_of_the_generation() -> None:
    clients = Recorded()
    messages(clients).wait(SANDBOX, 3, 7)
    ((operation, given),) = clients.calls
    assert (operation, given["name"]) == ("start_execution", f"{SANDBOX}-3")
    assert len(given["name"]) <= 80
    told = json.loads(given["input"])
    assert told.pop("seconds") == 7
    assert read(WORK, {"kind": "settle", **told}) == Settle(sandbox=SANDBOX, generation=3)


def everything(made: Messages) -> None:
    made.worker(SANDBOX)
    made.cleanup(SANDBOX, 1)
    made.reconcile("pool-1")
    made.dispatch()
    made.deliver(WEBHOOK)
    made.wait(SANDBOX, 1, 1)


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "canary"}}, "Operation")


@pytest.mark.parametrize(
    "error", [refused("ThrottlingException"), refused("AccessDenied"), EndpointConnectionError(endpoint_url="canary")]
)
def test_what_cannot_be_sent_is_told_and_lost(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    everything(messages(Recorded(error)))
    assert [record.msg for record in caplog.records] == ["message lost"] * 6
    assert "canary" not in str([vars(record) for record in caplog.records])


def test_a_workflow_that_runs_already_is_no_loss(caplog: pytest.LogCaptureFixture) -> None:
    messages(Recorded(refused("ExecutionAlreadyExists"))).wait(SANDBOX, 1, 1)
    assert not caplog.records


def test_nothing_is_sent_to_a_receiver_that_the_function_was_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clients = Recorded()
    names = ("WORKER_FUNCTION", "RECONCILE_FUNCTION", "DISPATCH_QUEUE_URL", "DELIVER_QUEUE_URL", "WAIT_MACHINE")
    everything(messages(clients, **dict.fromkeys(names, "")))
    assert not clients.calls
    assert [record.msg for record in caplog.records] == ["message lost"] * 6
