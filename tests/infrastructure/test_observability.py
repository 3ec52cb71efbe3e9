"""What is watched exists: its metrics are those that functions write, and each alarm has its runbook."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from differently_aws.logs import METRICS, NAMESPACE
from differently_infra.functions import FUNCTIONS
from differently_infra.packaging import ROOT
from differently_infra.watch import ALARMS, QUERIES
from tests.infrastructure.conftest import Deployed

WRITTEN = {metric.counts: metric.dimensions for metric in METRICS} | {
    name: metric.dimensions for metric in METRICS for name, _ in metric.values.values()
}


def graphed(deployed: Deployed) -> list[list[Any]]:
    """Our own metrics on the dashboard: name, then dimensions and values in turn."""
    (board,) = deployed.resources("AWS::CloudWatch::Dashboard").values()
    parts = board["Properties"]["DashboardBody"]["Fn::Join"][1]
    body = json.loads("".join(part if isinstance(part, str) else "x" for part in parts))
    entries = [entry for widget in body["widgets"] for entry in widget["properties"].get("metrics", [])]
    return [entry[1:] for entry in entries if entry[0] == NAMESPACE]


def test_every_series_on_the_dashboard_is_one_that_is_written(deployed: Deployed) -> None:
    found = graphed(deployed)
    assert len(found) > 10
    for name, *rest in found:
        dimensions = [entry for entry in rest if not isinstance(entry, dict)]
        assert set(dimensions[::2]) == set(WRITTEN[name]), name


@pytest.mark.parametrize("alarm", ALARMS, ids=lambda alarm: alarm.slug)
def test_an_alarm_has_a_runbook_and_rings_on_what_is_written(alarm: Any, deployed: Deployed) -> None:
    runbooks = (ROOT / "docs" / "how-to" / "runbooks.md").read_text(encoding="utf-8")
    assert f"\n## {alarm.slug}\n" in runbooks
    for series in alarm.series:
        if series.namespace == NAMESPACE:
            assert set(series.dimensions) == set(WRITTEN[series.metric])
    (made,) = [
        entry["Properties"]
        for entry in deployed.resources("AWS::CloudWatch::Alarm").values()
        if entry["Properties"]["AlarmName"] == f"differently-{alarm.slug}"
    ]
    assert made["AlarmDescription"].endswith(f"#{alarm.slug}")
    assert made["AlarmActions"]


def test_no_runbook_is_without_an_alarm() -> None:
    runbooks = (ROOT / "docs" / "how-to" / "runbooks.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## (\S+)$", runbooks, re.MULTILINE)) == {alarm.slug for alarm in ALARMS}


def test_queries_look_at_functions_that_are_there(deployed: Deployed) -> None:
    made = deployed.resources("AWS::Logs::QueryDefinition")
    assert len(made) == len(QUERIES)
    for query in QUERIES:
        assert set(query.functions) <= set(FUNCTIONS)


def test_without_alarms_nothing_watches(packages: Any) -> None:
    quiet = Deployed(packages, alarms={"enabled": False})
    assert "observability" not in quiet.templates


def test_an_address_is_told(packages: Any) -> None:
    told = Deployed(packages, alarms={"email": "operators@example.com"})
    (subscription,) = told.resources("AWS::SNS::Subscription").values()
    assert subscription["Properties"]["Endpoint"] == "operators@example.com"
