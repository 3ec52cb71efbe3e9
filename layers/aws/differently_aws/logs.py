"""Logs of a deployed function, some of whose lines are metrics as well.

CloudWatch reads metrics out of log lines that carry a description of themselves (embedded metric format): no call, no
agent, no second line. `METRICS` is the whole list: which line counts, what of it is a number, and by which of its facts
it is told apart. Facts with many values (organization, sandbox, key) stay in the line, where a query finds them, and
are never dimensions: each combination of dimensions costs money every month.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Final

from differently_core.runtime import telemetry

NAMESPACE: Final = "Differently"
OTHER: Final = "other"


@dataclass(frozen=True)
class Metric:
    """`counts` is the metric that counts the lines; `values` maps numbers of the line to metric and unit."""

    message: str
    counts: str
    dimensions: tuple[str, ...] = ("service",)
    values: Mapping[str, tuple[str, str]] = field(default_factory=dict)


METRICS: Final = (
    Metric("request", "Requests", ("service", "outcome"), {"durationMs": ("RequestDuration", "Milliseconds")}),
    Metric("message lost", "MessagesLost", ("service", "kind")),
    Metric("message dropped", "MessagesDropped"),
    Metric("message refused", "MessagesDropped"),
    Metric("swept", "Sweeps", ("service",), {"due": ("DueRows", "Count")}),
    Metric(
        "dispatched", "Dispatches", ("service",), {"admitted": ("Admitted", "Count"), "waiting": ("Waiting", "Count")}
    ),
    Metric(
        "queue pressure",
        "PoolsWaitedFor",
        ("service", "pool"),
        {
            "waiting": ("PoolWaiting", "Count"),
            "oldestSeconds": ("PoolOldestWaiting", "Seconds"),
            "cpu": ("PoolWantedCpu", "Count"),
            "memoryMiB": ("PoolWantedMemory", "Megabytes"),
        },
    ),
    Metric(
        "pool probed",
        "PoolProbes",
        ("service", "pool"),
        {"held": ("PoolHeld", "Count"), "retained": ("PoolRetained", "Count")},
    ),
    Metric("move finished", "Moves", ("service", "pool", "kind"), {"seconds": ("MoveSeconds", "Seconds")}),
    Metric(
        "snapshot taken",
        "SnapshotsTaken",
        ("service", "pool"),
        {"seconds": ("SnapshotSeconds", "Seconds"), "bytes": ("SnapshotBytes", "Bytes")},
    ),
    Metric("snapshot failed", "SnapshotsFailed", ("service", "pool")),
    Metric("snapshot lost", "SnapshotsLost", ("service", "pool")),
    Metric("port opened", "PortsOpened", ("service", "pool")),
    Metric("port not taken back yet", "PortsNotTakenBack", ("service", "pool")),
    Metric("not put to rest", "RestsRefused", ("service", "pool")),
    Metric("pool unusable", "PoolsUnusable"),
    Metric("pool not reconciled", "PoolsNotReconciled"),
    Metric("reconciled", "Reconciliations", ("service",), {"lost": ("Lost", "Count"), "orphans": ("Orphans", "Count")}),
    Metric("adapter bug", "AdapterFaults"),
    Metric(
        "sealed", "Seals", ("service",), {"events": ("EventsSealed", "Count"), "lagSeconds": ("SealLag", "Seconds")}
    ),
    Metric("not sealed", "SealFailures"),
    Metric("events missed", "MissedRounds", ("service",), {"events": ("EventsMissed", "Count")}),
    Metric("offered", "Offers", ("service",), {"deliveries": ("Deliveries", "Count")}),
    Metric("not offered", "OffersFailed"),
    Metric("not published", "PublishFailures", ("service",), {"events": ("EventsNotPublished", "Count")}),
    Metric("events not offered before", "LateOffers", ("service",), {"events": ("EventsLate", "Count")}),
    Metric("webhook sent", "WebhookTries"),
    Metric("webhook disabled", "WebhooksDisabled"),
    Metric("event unreadable", "EventsUnreadable"),
    Metric("event touched", "EventsTouched"),
    Metric("pool recounted", "PoolRecounts", ("service", "pool"), {"drift": ("PoolDrift", "Count")}),
    Metric("root contradicted", "RootsContradicted"),
    Metric("end not logged", "CommandEndsLost"),
    Metric("quota recounted", "QuotaRecounts", ("service",), {"drift": ("QuotaDrift", "Count")}),
)
_BY_MESSAGE: Final = {metric.message: metric for metric in METRICS}
OUTCOMES: Final = {2: "ok", 4: "refused", 5: "failed"}


class MetricFormatter(telemetry.JsonFormatter):
    """The JSON of every line; those that `METRICS` lists describe themselves to CloudWatch."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        metric = _BY_MESSAGE.get(record.msg)
        if metric is None:
            return text
        line: dict[str, Any] = json.loads(text)
        line.update(_outcome(line))
        line.update({name: OTHER for name in metric.dimensions if not line.get(name)})
        values = {key: value for key, value in metric.values.items() if isinstance(line.get(key), int | float)}
        line.update({name: line[key] for key, (name, _) in values.items()}, **{metric.counts: 1})
        line["_aws"] = {
            "Timestamp": int(record.created * 1000),
            "CloudWatchMetrics": [
                {
                    "Namespace": NAMESPACE,
                    "Dimensions": [list(metric.dimensions)],
                    "Metrics": [
                        {"Name": metric.counts, "Unit": "Count"},
                        *({"Name": name, "Unit": unit} for name, unit in values.values()),
                    ],
                }
            ],
        }
        return json.dumps(line, separators=(",", ":"))


def _outcome(line: Mapping[str, Any]) -> dict[str, str]:
    status = line.get("status")
    return {"outcome": OUTCOMES.get(status // 100, OTHER)} if isinstance(status, int) else {}


def configure(service: str, *, level: str, metrics: bool, stream: IO[str] | None = None) -> None:
    """Replaces whatever handlers the platform installed: each line is written once."""
    telemetry.configure(service, level=level, stream=stream)
    if metrics:
        for handler in logging.getLogger().handlers:
            handler.setFormatter(MetricFormatter(service))
