"""Times as callers write them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Annotated

from pydantic import BeforeValidator

_TIME = re.compile(r"(?a)\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)?")


def _moment(given: object) -> object:
    """Written out: not a number of seconds, which a date field would take too, nor a day alone."""
    if isinstance(given, datetime):
        return given
    if not isinstance(given, str) or not _TIME.fullmatch(given):
        raise ValueError("must be a time such as 2030-01-31T12:00:00Z")
    at = datetime.fromisoformat(given.upper())
    if at.tzinfo is None:
        raise ValueError("needs a time zone, such as 2030-01-31T12:00:00Z")
    try:
        return at.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("lies beyond the year 9999 in UTC") from error


Moment = Annotated[datetime, BeforeValidator(_moment)]
"""RFC 3339, with a time zone; kept in UTC."""


_DAY = re.compile(r"(?a)\d{4}-\d\d-\d\d")


def _day(given: object) -> object:
    """As `_moment`: a date field would take a number of seconds too."""
    if not isinstance(given, str) or not _DAY.fullmatch(given):
        raise ValueError("must be a day such as 2030-01-31")
    return given


Day = Annotated[date, BeforeValidator(_day)]
"""A day in UTC."""
