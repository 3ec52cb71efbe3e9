"""The messages that functions send each other, on Lambda, SQS and Step Functions.

A message that cannot be sent is lost, and that is all: what it was about has a due time in the store, and failing a
call whose change is already committed would be worse.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from .clients import Clients
from .environment import Environment

log = logging.getLogger(__name__)
CLOSED = "ExecutionAlreadyExists"
"""A workflow of this name ran before: the intent that it stood for is settled."""


class Messages:
    """The `Nudges` of a deployed function. A receiver that the environment does not name is never sent anything."""

    def __init__(self, environment: Environment, clients: Clients) -> None:
        self._environment = environment
        self._clients = clients

    def worker(self, sandbox: str) -> None:
        self._invoke("worker", self._environment.worker, {"kind": "step", "sandbox": sandbox})

    def cleanup(self, sandbox: str, attempt: int) -> None:
        message = {"kind": "cleanup", "sandbox": sandbox, "attempt": attempt}
        self._invoke("cleanup", self._environment.worker, message)

    def snapshot(self, snapshot: str) -> None:
        self._invoke("snapshot", self._environment.worker, {"kind": "snapshot", "snapshot": snapshot})

    def port(self, sandbox: str, port: int) -> None:
        self._invoke("port", self._environment.worker, {"kind": "port", "sandbox": sandbox, "port": port})

    def closing(self, tenant: str) -> None:
        self._invoke("closing", self._environment.worker, {"kind": "closing", "tenant": tenant})

    def deliver(self, webhook: str) -> None:
        self._queue("deliver", self._environment.deliver_queue, {"kind": "deliver", "webhook": webhook})

    def reconcile(self, pool: str) -> None:
        """One pass over one pool."""
        self._invoke("reconcile", self._environment.reconcile, {"kind": "reconcile", "pool": pool})

    def dispatch(self) -> None:
        self._queue("dispatch", self._environment.dispatch_queue, {"kind": "dispatch"})

    def wait(self, sandbox: str, generation: int, seconds: int) -> None:
        """Look at the sandbox again in `seconds`, and on until this generation is settled; once for each generation."""
        machine = self._environment.wait_machine
        if machine is None:
            _lost("wait", "no receiver")
            return
        # Names are unique in the machine, so however often a step asks, one workflow runs.
        _send("wait", lambda: self._clients.client("stepfunctions").start_execution(
            stateMachineArn=machine, name=f"{sandbox}-{generation}",
            input=json.dumps({"sandbox": sandbox, "generation": generation, "seconds": seconds}),
        ), harmless=CLOSED)  # fmt: skip

    def _queue(self, what: str, url: str | None, message: dict[str, Any]) -> None:
        if url is None:
            _lost(what, "no receiver")
            return
        body = json.dumps(message)
        _send(what, lambda: self._clients.client("sqs").send_message(QueueUrl=url, MessageBody=body))

    def _invoke(self, what: str, function: str | None, message: dict[str, Any]) -> None:
        if function is None:
            _lost(what, "no receiver")
            return
        _send(what, lambda: self._clients.client("lambda").invoke(
            FunctionName=function, InvocationType="Event", Payload=json.dumps(message).encode()
        ))  # fmt: skip


def _send(what: str, call: Callable[[], object], harmless: str = "") -> None:
    try:
        call()
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code != harmless:
            _lost(what, code)
    except BotoCoreError as error:
        _lost(what, type(error).__name__)


def _lost(what: str, why: str) -> None:
    log.warning("message lost", extra={"kind": what, "why": why})
