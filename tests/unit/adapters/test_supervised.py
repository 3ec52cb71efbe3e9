"""The script that supervises a command in a sandbox, run by the shells that sandboxes have."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from differently_adapters.supervised import Supervised, understood
from differently_core.contract import Exit, Output, Quiet
from differently_core.errors import ExecUnconfirmed, InvalidRequest, ProviderUnavailable
from differently_core.model.exec import ExecRequest
from differently_core.runtime.clock import SystemClock
from tests.support.local_shell import SHELLS, LocalShell


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> LocalShell:
    return LocalShell(tmp_path, SHELLS[request.param], KEPT="yes")


@pytest.fixture
def supervised(shell: LocalShell) -> Supervised:
    return Supervised(shell, SystemClock())


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_command_keeps_its_bytes_its_code_and_its_streams(supervised: Supervised, shell: LocalShell) -> None:
    command = r"printf '\377\000\n'; echo err >&2; exit 3"
    result = supervised.exec(ExecRequest(command=command), 100)
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"\xff\x00\n", b"err\n")
    assert list(shell.tmp.iterdir()) == []


def test_a_command_has_the_environment_that_it_was_given_and_no_variable_of_ours(supervised: Supervised) -> None:
    result = supervised.exec(ExecRequest(command="umask; env", env={"A": "'1'\n$2", "UID": "7"}), 10_000)
    told = result.stdout.decode()
    assert int(told.partition("\n")[0], 8) == int(subprocess.check_output("umask", shell=True), 8)
    assert "A='1'\n$2\n" in told
    assert "KEPT=yes\n" in told
    assert "dfy_" not in told


@pytest.mark.parametrize("stdin", ["", "line\n", "é\0" * 40_000])
def test_input_arrives_whole_also_when_the_script_grows_long(supervised: Supervised, stdin: str) -> None:
    assert supervised.exec(ExecRequest(command="cat", stdin=stdin), 1_000_000).stdout == stdin.encode()


def test_a_longer_output_keeps_its_ends(supervised: Supervised) -> None:
    result = supervised.exec(ExecRequest(command="printf HEAD; head -c 300000 /dev/zero; printf TAIL"), 11)
    assert result.stdout == b"HEAD\0\0" + b"\0TAIL"
    assert result.stdout_dropped_bytes == 300_008 - 11


def test_a_timeout_ends_the_whole_group_and_tells_what_was_written(supervised: Supervised, shell: LocalShell) -> None:
    command = "trap '' TERM; sleep 600 & echo $! $$ > pids; echo started; wait; sleep 600"
    result = supervised.exec(ExecRequest(command=command, timeout_seconds=1), 100)
    assert (result.exit_code, result.timed_out, result.stdout) == (124, True, b"started\n")
    assert all(gone(int(pid)) for pid in (shell.home / "pids").read_text().split())


def test_a_child_in_the_background_is_left_alone_and_not_waited_for(supervised: Supervised, shell: LocalShell) -> None:
    result = supervised.exec(ExecRequest(command="sleep 600 & echo $! > pid; echo now"), 100)
    pid = int((shell.home / "pid").read_text())
    assert (result.stdout, gone(pid)) == (b"now\n", False)
    os.kill(pid, 9)


def test_a_command_hears_an_interrupt(supervised: Supervised) -> None:
    result = supervised.exec(ExecRequest(command="sleep 5 & kill -s INT $$; echo deaf", timeout_seconds=20), 100)
    assert (result.exit_code, result.stdout) == (130, b"")


def test_a_killed_command_is_128_and_its_signal(supervised: Supervised) -> None:
    assert supervised.exec(ExecRequest(command="kill -s SEGV $$"), 100).exit_code == 139


def test_a_cwd_that_is_none_is_refused_and_nothing_runs(supervised: Supervised, shell: LocalShell) -> None:
    with pytest.raises(InvalidRequest, match="cwd"):
        supervised.exec(ExecRequest(command="touch ran", cwd="not there"), 100)
    assert not (shell.home / "ran").exists()
    assert list(shell.tmp.iterdir()) == []


def test_no_room_for_temporary_files_means_that_nothing_was_run(tmp_path: Path) -> None:
    shell = LocalShell(tmp_path)
    shell.env["TMPDIR"] = "/proc/nowhere"
    with pytest.raises(ProviderUnavailable) as refused:
        Supervised(shell, SystemClock()).exec(ExecRequest(command="true"), 100)
    assert refused.value.settled


@pytest.mark.parametrize("heard", [0, 35, 60])
def test_an_end_that_is_not_heard_is_unconfirmed(supervised: Supervised, shell: LocalShell, heard: int) -> None:
    shell.heard = heard
    for call in (
        lambda: supervised.exec(ExecRequest(command="echo once"), 100),
        lambda: list(supervised.stream(ExecRequest(command="echo once"), 1.0)),
    ):
        with pytest.raises(ExecUnconfirmed):
            call()


def test_a_stream_tells_all_in_its_order_and_that_it_is_alive(supervised: Supervised, shell: LocalShell) -> None:
    command = "echo one; until [ -e go ]; do sleep 0.02; done; head -c 500000 /dev/zero; echo err >&2; exit 5"
    events = supervised.stream(ExecRequest(command=command, timeout_seconds=20), 0.1)
    seen = []
    for event in events:
        seen.append(event)
        if isinstance(event, Quiet):
            (shell.home / "go").touch()
    first = next(event for event in seen if isinstance(event, Output))
    assert (first.stream, first.data[:4]) == ("stdout", b"one\n")
    assert any(isinstance(event, Quiet) for event in seen)
    written = b"".join(event.data for event in seen if isinstance(event, Output) and event.stream == "stdout")
    assert written == b"one\n" + bytes(500_000)
    assert isinstance(seen[-1], Exit)
    assert seen[-1].exit_code == 5


def test_what_is_written_after_the_end_belongs_to_nobody(supervised: Supervised, shell: LocalShell) -> None:
    command = "(while :; do echo more; done) & echo $! > background; exit 0"
    try:
        *_, end = supervised.stream(ExecRequest(command=command, timeout_seconds=20), 5.0)
    finally:
        os.kill(int((shell.home / "background").read_text()), signal.SIGKILL)
    assert isinstance(end, Exit)
    assert end.exit_code == 0


def told(*lines: bytes) -> Iterator[bytes]:
    return iter([line + b"\n" for line in lines])


def test_lines_of_others_are_ignored_and_damage_is_not_taken_for_output() -> None:
    (_, part, _) = understood(
        told(b"welcome", b"T begun", b"noise", b"T stdout base64", b"aGk=", b"T .", b"T exit 0 2 0 -"), "T"
    )
    assert part == Output("stdout", b"hi")
    for damage in ((b"T stdout base64", b"a.Gk", b"T ."), (b"T what",), (b"T exit x 0 0 -",)):
        with pytest.raises(ExecUnconfirmed):
            list(understood(told(*damage), "T"))


def test_without_base64_output_travels_as_hex() -> None:
    (part,) = understood(told(b"T stdout hex", b" 68 69", b" 0a", b"T ."), "T")
    assert part == Output("stdout", b"hi\n")
