"""What is watched: alarms with their runbooks, and queries that answer what a runbook asks. Pure tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from differently_aws.logs import NAMESPACE

from .functions import FUNCTIONS, STREAM_FUNCTIONS

LAMBDA: Final = "AWS/Lambda"
SQS: Final = "AWS/SQS"
GATEWAY: Final = "AWS/ApiGateway"
STATES: Final = "AWS/States"


@dataclass(frozen=True)
class Series:
    """One metric. A dimension's value may name a part of the installation: `{worker}` becomes its name."""

    namespace: str
    metric: str
    dimensions: Mapping[str, str]
    statistic: str = "Sum"


@dataclass(frozen=True)
class Alarm:
    """Rings when the sum of its series is above `above` in `periods` periods of five minutes in a row.

    `slug` is the section of docs/how-to/runbooks.md. `silence_rings`: no data at all is what is wrong.
    """

    slug: str
    about: str
    series: tuple[Series, ...]
    above: float = 0
    periods: int = 1
    silence_rings: bool = False
    below: float | None = None
    """Instead: rings when it is below."""


def _function(name: str, metric: str) -> Series:
    return Series(LAMBDA, metric, {"FunctionName": f"{{{name}}}"})


def _queue(name: str, metric: str) -> Series:
    return Series(SQS, metric, {"QueueName": f"{{{name}}}"}, "Maximum")


def _counted(metric: str, service: str, **dimensions: str) -> Series:
    return Series(NAMESPACE, metric, {"service": service, **dimensions})


_CALLED: Final = tuple(name for name in FUNCTIONS if name not in STREAM_FUNCTIONS)
"""What follows the stream is tried again in its place: it is watched by how late it is. An alarm takes ten series."""
ALARMS: Final = (
    Alarm(
        "api-errors", "Answers with 5xx at the gateway, for ten minutes",
        (Series(GATEWAY, "5XXError", {"ApiName": "{api}", "Stage": "live"}),), above=5, periods=2,
    ),
    Alarm(
        "function-errors", "Invocations that failed", tuple(_function(name, "Errors") for name in _CALLED), above=5,
    ),
    Alarm("throttles", "Invocations that Lambda refused", tuple(_function(name, "Throttles") for name in _CALLED)),
    Alarm(
        "clock-stopped", "The tick does not run", (_function("tick", "Invocations"),), below=1, silence_rings=True,
        periods=2,
    ),
    Alarm(
        "dead-letters", "Messages that were given up on",
        (
            _queue("queue-dead", "ApproximateNumberOfMessagesVisible"),
            _queue("deliver-queue-dead", "ApproximateNumberOfMessagesVisible"),
            _queue("failed", "ApproximateNumberOfMessagesVisible"),
        ),
    ),
    Alarm(
        "queue-stands", "The oldest message for dispatch is minutes old",
        (_queue("queue", "ApproximateAgeOfOldestMessage"),), above=180, periods=2,
    ),
    Alarm(
        "deliveries-stand", "The oldest message for deliver is minutes old",
        (_queue("deliver-queue", "ApproximateAgeOfOldestMessage"),), above=300, periods=2,
    ),
    Alarm(
        "events-late", "Events are sealed or told ten minutes after they happened",
        tuple(
            Series(LAMBDA, "IteratorAge", {"FunctionName": f"{{{name}}}"}, "Maximum") for name in STREAM_FUNCTIONS
        ),
        above=600_000, periods=2,
    ),
    Alarm(
        "workflow-failed", "Workflows that failed or took too long",
        (
            Series(STATES, "ExecutionsFailed", {"StateMachineArn": "{machine}"}),
            Series(STATES, "ExecutionsTimedOut", {"StateMachineArn": "{machine}"}),
        ),
    ),
    Alarm(
        "pools-fail", "Passes over pools that came to nothing, for half an hour",
        (_counted("PoolsNotReconciled", "reconcile"),), above=5, periods=6,
    ),
    Alarm(
        "seals-fail", "Events that could not be sealed, or had to be found by comparing",
        tuple(_counted(metric, "sealer") for metric in ("SealFailures", "EventsMissed", "EventsUnreadable")),
    ),
    Alarm(
        "seals-late", "Events were sealed more than five minutes after they were written",
        (Series(NAMESPACE, "SealLag", {"service": "sealer"}, "Maximum"),), above=300,
    ),
    Alarm("log-touched", "Somebody changed or removed events in the log, or a chain contradicts its root",
        (_counted("EventsTouched", "sealer"), _counted("RootsContradicted", "sealer")),
    ),
    Alarm("adapter-faults", "An adapter broke its contract", (_counted("AdapterFaults", "worker"),)),
)  # fmt: skip
"""Each series of each costs ten cents a month."""


@dataclass(frozen=True)
class Query:
    """A saved query over the logs of functions; `<…>` is for the reader to fill in."""

    name: str
    text: str
    functions: tuple[str, ...] = field(default=tuple(FUNCTIONS))


_FIELDS: Final = "fields @timestamp, service, level, message"
QUERIES: Final = (
    Query("one-request", f'{_FIELDS}, status, durationMs\n| filter requestId = "<request id>"\n| sort @timestamp'),
    Query(
        "one-sandbox",
        f'{_FIELDS}, status, error\n| filter sandboxId = "<sandbox id>" or sandbox = "<sandbox id>"\n| sort @timestamp',
    ),
    Query(
        "errors",
        f'{_FIELDS}, exception.0.type, requestId\n| filter level = "ERROR"\n| sort @timestamp desc\n| limit 200',
    ),
    Query(
        "slow-routes",
        'filter message = "request"\n| stats count() as calls, pct(durationMs, 50) as p50, pct(durationMs, 99) as p99'
        " by route, method\n| sort p99 desc",
        ("control", "admin", "data"),
    ),
    Query(
        "organizations",
        'filter message = "request"\n| stats count() as calls, sum(status >= 500) as failed by org\n| sort calls desc',
        ("control", "admin", "data"),
    ),
    Query(
        "pools-in-trouble",
        'filter message in ["pool unusable", "pool not reconciled", "adapter bug"]\n| stats count() as times by pool,'
        " message, error\n| sort times desc",
        ("worker", "reconcile", "tick"),
    ),
)
