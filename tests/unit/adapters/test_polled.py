"""Commands that are heard of by looking again and again, over the shells that sandboxes have."""

from __future__ import annotations

from pathlib import Path

import pytest

from differently_adapters.jobs import IN_TMPDIR, ShellJobs
from differently_adapters.polled import FAILURES_MAX, Polled
from differently_adapters.supervised import Supervised
from differently_core.contract import CommandResult, Exit, Output, Owner, Quiet, Target
from differently_core.errors import ExecUnconfirmed, NotFound, ProviderUnavailable
from differently_core.model.exec import ExecRequest
from differently_core.runtime.clock import SystemClock
from tests.support.local_shell import SHELLS, LocalShell

TARGET = Target(Owner("inst_a", "sbx_a"))


class Calls:
    """The backend's exec, which fails as `errors` say, from the second call on."""

    def __init__(self, shell: LocalShell) -> None:
        self._supervised = Supervised(shell, SystemClock())
        self.errors: list[Exception] = []
        self.made = 0

    def __call__(self, target: Target, request: ExecRequest, output_bytes_max: int) -> CommandResult:
        self.made += 1
        if self.errors and self.made > 1:
            raise self.errors.pop(0)
        return self._supervised.exec(request, output_bytes_max)


class NoWait(SystemClock):
    def sleep(self, seconds: float) -> None:
        pass


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> LocalShell:
    return LocalShell(tmp_path, SHELLS[request.param])


@pytest.fixture
def calls(shell: LocalShell) -> Calls:
    return Calls(shell)


@pytest.fixture
def polled(calls: Calls) -> Polled:
    return Polled(ShellJobs(calls, lambda _: IN_TMPDIR), NoWait())


def test_a_command_is_told_whole_in_two_calls_and_leaves_nothing(
    polled: Polled, calls: Calls, shell: LocalShell
) -> None:
    result = polled.exec(TARGET, ExecRequest(command=r"sleep 0.3; printf '\377'; echo err >&2; exit 3"), 100)
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"\xff", b"err\n")
    assert calls.made == 2
    assert list((shell.tmp / ".differently-jobs").iterdir()) == []


def test_a_longer_output_keeps_its_ends(polled: Polled) -> None:
    result = polled.exec(TARGET, ExecRequest(command="printf HEAD; head -c 300000 /dev/zero; printf TAIL"), 11)
    assert (result.stdout, result.stdout_dropped_bytes) == (b"HEAD\0\0\0TAIL", 300_008 - 11)


def test_a_time_limit_is_held_in_the_sandbox(polled: Polled) -> None:
    result = polled.exec(TARGET, ExecRequest(command="echo on; sleep 600", timeout_seconds=1), 100)
    assert (result.exit_code, result.timed_out, result.stdout) == (124, True, b"on\n")


def test_a_stream_tells_what_is_new_and_that_it_is_alive(polled: Polled, shell: LocalShell) -> None:
    seen = []
    command = "echo one; until [ -e go ]; do sleep 0.02; done; head -c 900000 /dev/zero; echo err >&2; exit 5"
    for event in polled.stream(TARGET, ExecRequest(command=command, timeout_seconds=20), 0.2):
        seen.append(event)
        if isinstance(event, Quiet):
            (shell.home / "go").touch()
    written = b"".join(event.data for event in seen if isinstance(event, Output) and event.stream == "stdout")
    assert written == b"one\n" + bytes(900_000)
    assert isinstance(seen[-1], Exit)
    assert seen[-1].exit_code == 5
    assert list((shell.tmp / ".differently-jobs").iterdir()) == []


def test_looks_that_fail_are_made_again_and_the_command_is_not(polled: Polled, calls: Calls, shell: LocalShell) -> None:
    calls.errors = [ProviderUnavailable("slow")] * (FAILURES_MAX - 1)
    assert polled.exec(TARGET, ExecRequest(command="echo ran >> ran"), 100).exit_code == 0
    assert (shell.home / "ran").read_text() == "ran\n"


@pytest.mark.parametrize("errors", [[ProviderUnavailable("down")] * FAILURES_MAX, [NotFound("gone")]])
def test_an_end_that_is_not_seen_is_unconfirmed(polled: Polled, calls: Calls, errors: list[Exception]) -> None:
    calls.errors = list(errors)
    with pytest.raises(ExecUnconfirmed):
        polled.exec(TARGET, ExecRequest(command="true"), 100)


def test_without_processes_and_without_an_exit_nothing_is_claimed(polled: Polled) -> None:
    command = "kill -s KILL $PPID $$"
    with pytest.raises(ExecUnconfirmed):
        polled.exec(TARGET, ExecRequest(command=command), 100)
