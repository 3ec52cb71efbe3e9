"""One line for each event, for a person or for a program."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from differently_local import logs
from differently_local.logs import TextFormatter


def a_record(message: str = "swept", **extra: Any) -> logging.LogRecord:
    name = "differently_core.operations.sweep"
    record = logging.getLogger(name).makeRecord(name, logging.INFO, "file.py", 1, message, (), None, extra=extra)
    record.created = 1_700_000_000.0
    return record


def test_text_is_one_readable_line() -> None:
    line = TextFormatter().format(a_record(due=3, org=None, why="no room\nat all", sandbox="sbx_1", empty=""))
    assert line.endswith('info    core.operations.sweep: swept due=3 why="no room\\nat all" sandbox=sbx_1 empty=""')
    assert "\n" not in line


def test_an_exception_comes_with_its_places_and_without_its_text() -> None:
    record = a_record()
    try:
        raise ValueError("canary")
    except ValueError:
        record.exc_info = sys.exc_info()
    line, cause = TextFormatter().format(record).splitlines()
    assert "builtins.ValueError at test_logs.py:" in cause
    assert "canary" not in line + cause


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, put back as it was."""
    found = logging.getLogger()
    handlers, level = found.handlers[:], found.level
    yield found
    found.handlers[:] = handlers
    found.setLevel(level)


@pytest.mark.parametrize("form", ["text", "json"])
def test_lines_go_to_stderr_in_the_form_asked_for(
    root: logging.Logger, capsys: pytest.CaptureFixture[str], form: Any
) -> None:
    logs.configure(form, "INFO")
    logging.getLogger("differently_core").info("swept", extra={"due": 3})
    logging.getLogger("botocore").info("chatter")
    written = capsys.readouterr()
    assert written.out == ""
    (line,) = written.err.splitlines()
    assert json.loads(line)["due"] == 3 if form == "json" else "core: swept due=3" in line
