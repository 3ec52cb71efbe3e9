"""How results, failures and progress are written."""

from __future__ import annotations

import io
import json
from datetime import datetime, timezone

import pytest

pytest.importorskip("typer")

from differently._failure import ConfigurationError, ConnectionFailed, SandboxEnded, WaitTimeout
from differently.cli import exits, failures, output
from differently.cli.output import Format
from differently.cli.watching import Line, size
from differently.errors import ExecUnconfirmed, InvalidRequest, NotFound
from differently.models import SandboxView


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert output.coloured(Terminal())
    assert not output.coloured(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not output.coloured(Terminal())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not output.coloured(Terminal())


def test_progress_is_for_terminals_and_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr("sys.stderr", stream)
        with Line("sbx_1") as line:
            line.tell("queued, place 3")
        assert ("queued, place 3" in stream.getvalue()) == shown
        assert stream.getvalue().endswith("\r\x1b[2K") == shown


def test_text_of_others_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_list([{"name": "a\x1b[2Jb\u202ec\nd"}], Format.table, (("NAME", "name"),))
    assert capsys.readouterr().out == "NAME\na\ufffd[2Jb\ufffdc d\n"
    failures.told(NotFound("gone\x1b]0;title\x07", request_id="r\x1b"))
    assert "\x1b" not in capsys.readouterr().err


def test_nothing_of_a_table_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    output.show_list([{"a": long, "b": None}, {"a": "y", "b": [1, 2]}], Format.table, (("A", "a"), ("B", "b")))
    assert capsys.readouterr().out.splitlines() == ["A".ljust(300) + "  B", f"{long}  -", "y".ljust(300) + "  1, 2"]


def test_documents_are_what_the_server_sent(capsys: pytest.CaptureFixture[str]) -> None:
    found = SandboxView.from_dict({"id": "sbx_1", "newer": {"ä": [1]}})
    output.show(found, Format.json)
    assert json.loads(capsys.readouterr().out) == found.to_dict()
    output.show(found, Format.yaml)
    assert capsys.readouterr().out == "id: sbx_1\nnewer:\n  ä:\n  - 1\n"


def test_an_error_names_code_details_next_step_and_request(capsys: pytest.CaptureFixture[str]) -> None:
    failures.told(
        InvalidRequest("ttlSecond: there is no such field.", details={"field": "ttlSecond"}, request_id="r-1")
    )
    assert capsys.readouterr().err.splitlines() == [
        "error: ttlSecond: there is no such field. (invalid_request)",
        "  details: field=ttlSecond",
        "  next: Correct the field that the message names; nothing was done.",
        "  request: r-1",
    ]
    failures.told(FileNotFoundError(2, "No such file", "x"))
    assert "No such file" in capsys.readouterr().err
    failures.told(KeyError())
    assert capsys.readouterr().err == "error: KeyError\n"


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (ConfigurationError("x"), exits.USAGE),
        (ConnectionFailed("x", sent=False), exits.UNREACHED),
        (WaitTimeout("x", None), exits.NOT_THERE),
        (SandboxEnded("x", None), exits.NOT_THERE),
        (ExecUnconfirmed("x"), exits.FAILED),
        (OSError("x"), exits.FAILED),
    ],
)
def test_exit_codes_tell_kinds_of_failures_apart(failure: BaseException, code: int) -> None:
    assert exits.of(failure) == code
    assert code in exits.MEANINGS


def test_ages_and_sizes_read_well() -> None:
    now = datetime(2026, 11, 2, 12, tzinfo=timezone.utc)
    told = [output.age(f"2026-11-{day}Z", now) for day in ("02T11:59:30", "02T11:10:00", "02T01:00:00")]
    assert (told, output.age("2026-10-01T00:00:00Z", now), output.age(None)) == (["30s", "50m", "11h"], "32d", "-")
    assert [size(count) for count in (0, 9999, 20_000, 50 * 1024**2, 40 * 1024**3)] == [
        "0 B", "9999 B", "20 KiB", "50 MiB", "40 GiB",
    ]  # fmt: skip
