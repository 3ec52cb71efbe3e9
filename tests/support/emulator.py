"""The embedded AWS for tests: one process per test worker, started on first use and ended with the session.

A test that asks for the fixture `emulator` gets an `Emulator`; its `url` is what an SDK takes as endpoint, and
`emulator.client("sqs")` is a boto3 client for it. A fresh set of tables, from the template that is deployed:

    def test_something(emulator):
        tables = emulator.tables()      # Tables(config="...", state="...", log="...", log_stream_arn="...")

Each call makes its own set, so tests share the process without seeing each other's rows; creating one takes some
milliseconds. `emulator.create_stack()` goes the long way, through CloudFormation, as `make run` does.

Nothing but this machine is listened to, and the process does not outlive the tests: it is ended by its own id, and
where the kernel can (Linux), it also gets a signal should the test process be killed.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import boto3
from botocore.config import Config

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-emulator" / "bin" / "python"
TEMPLATE = ROOT / "local" / "differently_local" / "data_stack.template.json"

REGION = "us-east-1"
KEY_ID = "test"
SECRET = "test"

READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 10.0
STARTS_MAX = 3
"""A free port can be taken by somebody else before the child binds it."""

# Runs ministack, asking the kernel first to end it with its parent; macOS has no such call.
CHILD = """
import ctypes, runpy, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
runpy.run_module("ministack", run_name="__main__")
"""


class Tables(NamedTuple):
    """Physical names of one set of tables."""

    config: str
    state: str
    log: str
    log_stream_arn: str


class Emulator:
    """A running emulator, for as long as the fixture lives."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.region = REGION
        self.key_id = KEY_ID
        self.secret = SECRET
        self._numbers = itertools.count(1)

    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=KEY_ID,
            aws_secret_access_key=SECRET,
            config=Config(retries={"total_max_attempts": 1}, max_pool_connections=64),
        )

    def tables(self) -> Tables:
        """A fresh, empty set of the three tables, as the shipped template describes them."""
        client = self.client("dynamodb")
        number = next(self._numbers)
        made: dict[str, Any] = {}
        for resource in _table_resources():
            kind = _kind(resource["logical_id"])
            answer = client.create_table(TableName=f"{kind}-{number}", **_as_create_table(resource["properties"]))
            made[kind] = answer["TableDescription"]
        return Tables(
            config=made["config"]["TableName"],
            state=made["state"]["TableName"],
            log=made["log"]["TableName"],
            log_stream_arn=made["log"]["LatestStreamArn"],
        )

    def secrets_key(self) -> str:
        """The ARN of a fresh key that seals secrets."""
        return str(self.client("kms").create_key()["KeyMetadata"]["Arn"])

    def create_stack(self) -> Tables:
        """The three tables through CloudFormation, from the shipped template."""
        client = self.client("cloudformation")
        name = f"data-{next(self._numbers)}"
        client.create_stack(StackName=name, TemplateBody=TEMPLATE.read_text(encoding="utf-8"))
        client.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
        (stack,) = client.describe_stacks(StackName=name)["Stacks"]
        outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
        return Tables(
            config=outputs["ConfigTableName"],
            state=outputs["StateTableName"],
            log=outputs["LogTableName"],
            log_stream_arn=outputs["LogStreamArn"],
        )


@contextmanager
def running_emulator(state_dir: Path) -> Iterator[Emulator]:
    """Start one, wait until it answers, and end it on the way out, whatever happened."""
    if not PYTHON.exists():
        raise RuntimeError("the emulator's environment is missing: run the tests with `make test`")
    state_dir.mkdir(parents=True, exist_ok=True)
    log_path = state_dir / "emulator.log"
    for _ in range(STARTS_MAX):
        port = _free_port()
        with log_path.open("ab") as log:
            child = subprocess.Popen(
                [PYTHON, "-c", CHILD],
                env=_environment(port, state_dir),
                cwd=state_dir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            url = f"http://127.0.0.1:{port}"
            if _answers(child, url):
                yield Emulator(url)
                return
        finally:
            _end(child)
    raise RuntimeError(f"the emulator did not start:\n{log_path.read_text(errors='replace')[-4000:]}")


def _environment(port: int, state_dir: Path) -> dict[str, str]:
    """Only what it needs: no setting of the caller's shell changes what is tested."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(state_dir),
        "TMPDIR": str(state_dir),
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        # Both would listen on every address of the machine.
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "MINISTACK_REGION": REGION,
        "S3_DATA_DIR": str(state_dir / "s3"),
        "STATE_DIR": str(state_dir / "state"),
        "PERSIST_STATE": "0",
        "LOG_LEVEL": "WARNING",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _answers(child: subprocess.Popen[bytes], url: str) -> bool:
    """Wait for the health page; False when the child is gone, as it is when its port was taken."""
    # A proxy of the environment must not come between a test and this machine.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < deadline:
        if child.poll() is not None:
            return False
        try:
            with direct.open(f"{url}/_ministack/health", timeout=2) as answer:
                if answer.status == 200:
                    return child.poll() is None
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    return False


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
    try:
        child.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _table_resources() -> list[dict[str, Any]]:
    resources = json.loads(TEMPLATE.read_text(encoding="utf-8"))["Resources"]
    return [
        {"logical_id": logical_id, "properties": resource["Properties"]}
        for logical_id, resource in resources.items()
        if resource["Type"] == "AWS::DynamoDB::GlobalTable"
    ]


def _kind(logical_id: str) -> str:
    """`State1C20CC9A` -> `state`: CDK ends a logical id with eight hexadecimal digits."""
    return logical_id[:-8].lower()


def _as_create_table(properties: dict[str, Any]) -> dict[str, Any]:
    """What CreateTable takes of a GlobalTable's properties; it has the stream's switch as a field of its own."""
    asked: dict[str, Any] = {
        name: properties[name]
        for name in ("AttributeDefinitions", "KeySchema", "BillingMode", "GlobalSecondaryIndexes")
        if name in properties
    }
    if "StreamSpecification" in properties:
        asked["StreamSpecification"] = {"StreamEnabled": True, **properties["StreamSpecification"]}
    return asked
