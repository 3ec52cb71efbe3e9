"""Lines that are metrics, as CloudWatch reads them; and every other line as it always was."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from differently_aws import logs
from differently_aws.logs import METRICS, NAMESPACE
from differently_core.runtime import telemetry

ROOT = Path(__file__).parents[3]


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = before
    root.setLevel(level)


def written(stream: io.StringIO, message: str, *, metrics: bool = True, **facts: Any) -> dict[str, Any]:
    logs.configure("control", level="INFO", metrics=metrics, stream=stream)
    logging.getLogger("differently.test").info(message, extra=facts)
    line: dict[str, Any] = json.loads(stream.getvalue())
    return line


def test_a_request_is_counted_and_timed_by_service_and_outcome(stream: io.StringIO) -> None:
    line = written(stream, "request", status=503, durationMs=12.5, keyId="key_1", org="org_1")
    (described,) = line["_aws"]["CloudWatchMetrics"]
    assert described == {
        "Namespace": NAMESPACE,
        "Dimensions": [["service", "outcome"]],
        "Metrics": [
            {"Name": "Requests", "Unit": "Count"},
            {"Name": "RequestDuration", "Unit": "Milliseconds"},
        ],
    }
    assert (line["service"], line["outcome"], line["Requests"], line["RequestDuration"]) == (
        "control", "failed", 1, 12.5,
    )  # fmt: skip
    assert (line["org"], line["message"], line["status"]) == ("org_1", "request", 503)
    assert isinstance(line["_aws"]["Timestamp"], int)


@pytest.mark.parametrize(
    ("status", "outcome"), [(200, "ok"), (202, "ok"), (304, "other"), (429, "refused"), (500, "failed")]
)
def test_an_outcome_is_one_of_few(stream: io.StringIO, status: int, outcome: str) -> None:
    assert written(stream, "request", status=status)["outcome"] == outcome


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.message)
def test_each_metric_names_values_that_its_line_holds(stream: io.StringIO, metric: logs.Metric) -> None:
    numbers: dict[str, Any] = dict.fromkeys(metric.values, 3)
    line = written(stream, metric.message, **numbers)
    (described,) = line["_aws"]["CloudWatchMetrics"]
    assert len(described["Metrics"]) == 1 + len(metric.values)
    assert all(isinstance(line[entry["Name"]], int | float) for entry in described["Metrics"])
    assert all(line[name] for name in metric.dimensions)


def test_a_value_that_is_no_number_is_no_metric(stream: io.StringIO) -> None:
    (described,) = written(stream, "request", durationMs="canary")["_aws"]["CloudWatchMetrics"]
    assert [entry["Name"] for entry in described["Metrics"]] == ["Requests"]


def test_other_lines_and_switched_off_metrics_stay_plain(stream: io.StringIO) -> None:
    assert "_aws" not in written(stream, "something else", status=200)
    stream.truncate(0)
    stream.seek(0)
    assert "_aws" not in written(stream, "request", metrics=False, status=200)


def test_a_platform_s_own_handlers_write_no_line_twice(stream: io.StringIO) -> None:
    logging.getLogger().addHandler(logging.StreamHandler(stream))
    assert written(stream, "request")


def test_no_dimension_has_many_values() -> None:
    """aws.md 7.1: each combination costs money; organizations, sandboxes and keys stay in the line."""
    assert {name for metric in METRICS for name in metric.dimensions} <= {"service", "outcome", "kind", "pool"}


def test_each_metric_comes_from_a_line_that_the_code_writes() -> None:
    source = "".join(
        path.read_text(encoding="utf-8") for part in ("layers", "functions") for path in (ROOT / part).rglob("*.py")
    )
    said = set(re.findall(r"log\.\w+\((?:\s*logging\.[^\"]+,)?\s*\"([^\"]+)\"", source))
    assert {metric.message for metric in METRICS} <= said
    assert telemetry.JsonFormatter in logs.MetricFormatter.__mro__
