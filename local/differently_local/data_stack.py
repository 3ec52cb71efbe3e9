"""The data stack on the embedded AWS: the template that is deployed, through the CloudFormation that is deployed to.

The endpoint must be loopback and the credentials are made up here, so that neither a profile nor a variable of the
caller's can ever point this at a real account.
"""

from __future__ import annotations

import ipaddress
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from differently_core.model.record import Table

from .failure import StartFailure
from .signals import StopRequest

REGION = "us-east-1"
KEY_ID, SECRET = "differently-local", "not-a-secret"
STACK = "differently-local-data"
TEMPLATE = Path(__file__).with_name("data_stack.template.json")
CREATE_SECONDS_MAX = 60.0
POLL_SECONDS = 0.05
_KEY_OUTPUT = "SecretsKeyArn"
_STREAM_OUTPUT = "LogStreamArn"
_BUCKET_OUTPUT = "StagingBucketName"
_ARCHIVE_OUTPUT = "ArchiveBucketName"
_TABLE_TYPE = "AWS::DynamoDB::GlobalTable"
_OUTPUTS = {Table.CONFIG: "ConfigTableName", Table.STATE: "StateTableName", Table.LOG: "LogTableName"}
_SCHEMA = ("AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes")
_SETTLED = {"CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE"}


class Made(NamedTuple):
    """The names of the three tables, the ARNs of the key that seals secrets and of the log's stream, and the buckets
    of large files and of roots: data that an older version made has none, takes no uploads, and keeps roots in the log
    alone.
    """

    tables: Mapping[Table, str]
    secrets_key: str
    log_stream: str
    staging: str | None
    archive: str | None


def obtain(endpoint: str, stop: StopRequest, say: Callable[[str], None]) -> Made:
    """What the stack holds, made if this is the first start."""
    client = _cloudformation(endpoint)
    try:
        stack = _find(client)
        if stack is None:
            say("making the tables from the data stack's template")
            client.create_stack(StackName=STACK, TemplateBody=TEMPLATE.read_text(encoding="utf-8"))
            stack = _await(client, stop)
        else:
            _check_unchanged(client)
    except (BotoCoreError, ClientError) as error:
        raise StartFailure(f"The data stack could not be made on the embedded AWS: {error}") from error
    if stack["StackStatus"] not in _SETTLED:
        raise StartFailure(
            f"The data stack is {stack['StackStatus']} ({stack.get('StackStatusReason', 'no reason given')}). "
            "Remove the data directory to start afresh; everything in it is lost."
        )
    return _made(stack)


def _made(stack: dict[str, Any]) -> Made:
    outputs = {entry["OutputKey"]: entry["OutputValue"] for entry in stack.get("Outputs", [])}
    missing = sorted({*_OUTPUTS.values(), _KEY_OUTPUT, _STREAM_OUTPUT} - set(outputs))
    if missing:
        raise StartFailure(
            f"The data stack has no output {', '.join(missing)}; it was made by another version. Move the data "
            "directory away to start afresh, or run the version that made it."
        )
    tables = {table: outputs[name] for table, name in _OUTPUTS.items()}
    buckets = outputs.get(_BUCKET_OUTPUT), outputs.get(_ARCHIVE_OUTPUT)
    return Made(tables, outputs[_KEY_OUTPUT], outputs[_STREAM_OUTPUT], *buckets)


def _check_unchanged(client: Any) -> None:
    """Raises `StartFailure` when the tables are not those of today's template.

    The embedded AWS would change them by making empty ones in their place, so an update is never asked for.
    """
    made = client.get_template(StackName=STACK)["TemplateBody"]
    made = json.loads(made) if isinstance(made, str) else made
    if schemas(made) != schemas(json.loads(TEMPLATE.read_text(encoding="utf-8"))):
        raise StartFailure(
            "The tables in the data directory were made by another version, and the embedded AWS cannot change them "
            "without losing what is in them. Move the data directory away to start afresh, or run the version that "
            "made it."
        )


def schemas(template: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What of each table decides whether the code can use it."""
    return [
        {name: resource["Properties"].get(name) for name in _SCHEMA}
        for _, resource in sorted(template["Resources"].items())
        if resource["Type"] == _TABLE_TYPE
    ]


def _await(client: Any, stop: StopRequest) -> dict[str, Any]:
    end = time.monotonic() + CREATE_SECONDS_MAX
    while time.monotonic() < end:
        stack = _find(client)
        if stack is not None and not stack["StackStatus"].endswith("_IN_PROGRESS"):
            return stack
        stop.pause(POLL_SECONDS)
    raise StartFailure(f"The tables were not ready after {CREATE_SECONDS_MAX:.0f} s.")


def _find(client: Any) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = client.describe_stacks(StackName=STACK)["Stacks"][0]
    except ClientError as error:
        if error.response["Error"]["Code"] == "ValidationError":
            return None
        raise
    return found


def _cloudformation(endpoint: str) -> Any:
    require_loopback(endpoint)
    session = botocore.session.Session()
    return session.create_client(
        "cloudformation", region_name=REGION, endpoint_url=endpoint, aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
        config=Config(proxies={}, connect_timeout=2, read_timeout=30, retries={"total_max_attempts": 2}),
    )  # fmt: skip


def require_loopback(endpoint: str) -> None:
    """Raises `StartFailure` for an endpoint that could be anything but this machine."""
    host = urlsplit(endpoint).hostname or ""
    try:
        if ipaddress.ip_address(host).is_loopback:
            return
    except ValueError:
        pass
    raise StartFailure(f"The endpoint {endpoint} is not a loopback address; refusing to make anything there.")
