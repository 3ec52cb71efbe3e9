"""Log lines are JSON, whole, and free of what foreign exceptions say."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from differently_core.runtime import telemetry


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What the configured root logger writes; the root is put back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    text = io.StringIO()
    telemetry.configure("test", stream=text)
    yield text
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(text: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.getvalue().splitlines()]


def test_a_line_holds_its_facts(written: io.StringIO) -> None:
    logging.getLogger("some.module").info("moved", extra={"sandbox": "sbx_1", "count": 3, "known": None, "ok": True})
    (line,) = lines(written)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "INFO", "service": "test", "logger": "some.module", "message": "moved", "sandbox": "sbx_1",
        "count": 3, "known": None, "ok": True,
    }  # fmt: skip


def test_an_exception_is_its_type_and_way_but_not_its_text(written: io.StringIO) -> None:
    def inner() -> None:
        raise ValueError("https://user:secret@host")

    try:
        try:
            inner()
        except ValueError as error:
            raise RuntimeError("secret too") from error
    except RuntimeError:
        logging.getLogger(__name__).exception("broke")
    assert "secret" not in written.getvalue()
    first, cause = lines(written)[0]["exception"]
    assert (first["type"], cause["type"]) == ("builtins.RuntimeError", "builtins.ValueError")
    assert cause["frames"][-1].endswith(" inner")


def test_values_are_bounded_and_anything_can_be_one(written: io.StringIO) -> None:
    class Odd:
        def __str__(self) -> str:
            return "odd\n\u2028"

    logging.getLogger(__name__).info("x" * 5_000, extra={"odd": Odd(), "long": "y" * 5_000})
    assert written.getvalue().count("\n") == 1
    (line,) = lines(written)
    assert (line["odd"], len(line["long"]), len(line["message"])) == ("odd\n\u2028", 2_001, 2_001)


def test_a_chain_of_causes_has_an_end(written: io.StringIO) -> None:
    error: Exception = ValueError()
    for _ in range(50):
        try:
            raise RuntimeError from error
        except RuntimeError as raised:
            error = raised
    logging.getLogger(__name__).error("broke", exc_info=error)
    assert len(lines(written)[0]["exception"]) == telemetry.CAUSES_MAX


def test_libraries_that_log_every_call_are_kept_short(written: io.StringIO) -> None:
    logging.getLogger("httpx").info("GET https://host/?token=secret")
    logging.getLogger("httpx").warning("kept")
    assert [line["message"] for line in lines(written)] == ["kept"]
