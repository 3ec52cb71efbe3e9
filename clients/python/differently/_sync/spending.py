"""What was used and what it may cost, and what is known of the pools that it ran on."""

# Made from _async: python scripts/sync_client.py

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date

from .._request import at, given, request
from ..models import BudgetView, PlacementView, TrustReport, UsageReport
from .paging import items
from .transport import Transport


class Usage:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def report(
        self, *, group_by: str | None = None, since: date | str | None = None, to: date | str | None = None,
        org: str | None = None, project: str | None = None,
    ) -> UsageReport:  # fmt: skip
        """Of this month, or the days from `since` up to the one before `to`. Lines are in `items`.

        `group_by` is `org`, `project`, `pool`, `key`, `day` or `label:NAME`.
        """
        query = {"groupBy": group_by, "from": _day(since), "to": _day(to), "orgId": org, "projectId": project}
        return UsageReport.from_dict(self._transport.document(request("GET", "/v1/usage", query=query)))


class Trust:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def report(self) -> TrustReport:
        """What is known of each pool, and how. Nothing in it is a secret."""
        return TrustReport.from_dict(self._transport.document(request("GET", "/v1/trust-report")))

    def placements(self, *, org: str | None = None, at_most: int | None = None) -> Iterator[PlacementView]:
        """Where sandboxes ran, and by which decision; oldest first."""
        return items(self._transport, "/v1/trust-report/placements", PlacementView, {"orgId": org}, at_most)


class Budgets:
    """Of an organization (`org_…`) or a project (`proj_…`)."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, id: str) -> BudgetView:
        return BudgetView.from_dict(self._transport.document(request("GET", _path(id))))

    def put(
        self, id: str, limit: float, *, currency: str | None = None, thresholds: Sequence[int] | None = None,
        action: str | None = None,
    ) -> BudgetView:  # fmt: skip
        """What may be spent in a calendar month; `action` says what happens beyond it."""
        levels = list(thresholds) if thresholds is not None else None
        body = given(limit=limit, currency=currency, thresholds=levels, action=action)
        return BudgetView.from_dict(self._transport.document(request("PUT", _path(id), body=body)))

    def delete(self, id: str) -> None:
        self._transport.document(request("DELETE", _path(id)))


def _path(id: str) -> str:
    return at("/v1/orgs/{}/budget" if id.startswith("org_") else "/v1/projects/{}/budget", id)


def _day(day: date | str | None) -> str | None:
    return day.isoformat() if isinstance(day, date) else day
