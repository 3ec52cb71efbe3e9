"""One line for each event, for a person or for a program."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from differently_local.logs import JsonFormatter, TextFormatter


def a_record(message: str = "swept", **extra: Any) -> logging.LogRecord:
    record = logging.getLogger("differently_core.operations.sweep").makeRecord(
        "differently_core.operations.sweep", logging.INFO, "file.py", 1, message, (), None, extra=extra
    )
    record.created = 1_700_000_000.0
    return record


def test_text_is_one_readable_line() -> None:
    line = TextFormatter().format(a_record(due=3, org=None, why="no room\nat all", sandbox="sbx_1", empty=""))
    assert line.endswith('info    core.operations.sweep: swept due=3 why="no room\\nat all" sandbox=sbx_1 empty=""')
    assert "\n" not in line


def test_json_holds_the_same_facts() -> None:
    line = json.loads(JsonFormatter().format(a_record(due=3, odd=object)))
    assert line["timestamp"] == "2023-11-14T22:13:20.000+00:00"
    assert (line["level"], line["message"], line["due"]) == ("INFO", "swept", 3)
    assert "class" in line["odd"]


def test_an_exception_comes_with_its_place() -> None:
    record = a_record()
    try:
        raise ValueError("broken")
    except ValueError:
        record.exc_info = sys.exc_info()
    assert "ValueError: broken" in TextFormatter().format(record)
    assert "ValueError: broken" in json.loads(JsonFormatter().format(record))["exception"]
