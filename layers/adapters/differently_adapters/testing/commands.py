"""Commands that are waited for, and commands that are followed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import pytest

from differently_core.contract import Adapter, ExecEvent, Exit, Operation, Output, Quiet, Target
from differently_core.errors import ExecUnconfirmed, NotFound
from differently_core.model.exec import EXIT_TIMEOUT, ExecRequest

from .backend import BackendUnderTest
from .fixtures import OUTPUT_BYTES, Run, SuiteFixtures, Until, needs

ODD_TEXT = 'it\'s "odd": $HOME `id` \\ * ; & | > \t é 🙂 -x %s \n end'
QUIET_SECONDS = 0.05
Follow = Callable[..., Iterator[ExecEvent]]


class CommandTests(SuiteFixtures):
    @pytest.mark.parametrize("code", [0, 1, 3, 255])
    def test_an_exit_code_is_a_result(self, run: Run, code: int) -> None:
        result = run(f"exit {code}")
        assert result.exit_code == code
        assert not result.timed_out

    def test_a_signal_is_128_and_its_number(self, run: Run) -> None:
        assert run("kill -s KILL $$").exit_code == 137

    def test_streams_are_kept_apart(self, run: Run) -> None:
        result = run("echo out; echo err >&2")
        assert (result.stdout, result.stderr) == (b"out\n", b"err\n")

    def test_a_command_is_a_shell_line(self, run: Run) -> None:
        assert run("x=shell; echo $x | tr a-z A-Z && echo 'it'").stdout == b"SHELL\nit\n"

    def test_arguments_meet_no_shell(self, run: Run) -> None:
        assert run(args=["printf", "%s|", ODD_TEXT, "", "*"]).stdout == f"{ODD_TEXT}||*|".encode()

    def test_a_missing_executable_is_a_result(self, run: Run) -> None:
        result = run(args=["no-such-program-here"])
        assert result.exit_code == 127
        assert result.stderr

    def test_environment_comes_from_create_and_from_exec(self, run: Run) -> None:
        command = 'printf %s "$FROM_CREATE|$BOTH|$ODD"'
        result = run(command, env={"BOTH": "exec", "ODD": ODD_TEXT})
        assert result.stdout == f"yes|exec|{ODD_TEXT}".encode()

    def test_an_exec_leaves_its_environment_to_nobody(self, run: Run) -> None:
        run("true", env={"BOTH": "exec"})
        assert run('printf %s "$BOTH"').stdout == b"create"

    def test_the_control_planes_environment_stays_outside(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("AWS_SECRET_ACCESS_KEY", "DIFFERENTLY_PEPPER", "SOME_TOKEN"):
            monkeypatch.setenv(name, "canary-of-ours")
        assert b"canary-of-ours" not in run("env").stdout

    def test_a_relative_cwd_starts_where_commands_start(self, run: Run) -> None:
        run("mkdir -p 'a b/c'; echo here > 'a b/c/file'")
        assert run("cat file", cwd="a b/c").stdout == b"here\n"

    def test_stdin_arrives_whole(self, run: Run) -> None:
        text = ODD_TEXT * 2_000
        assert run("cat", stdin=text).stdout == text.encode()

    def test_without_stdin_the_input_is_closed(self, run: Run) -> None:
        result = run("cat; echo ended", timeout_seconds=20)
        assert result.stdout == b"ended\n"
        assert not result.timed_out

    def test_a_command_that_ignores_its_input_ends_all_the_same(self, run: Run) -> None:
        assert run("exit 4", stdin="x" * 500_000).exit_code == 4

    def test_bytes_that_are_not_text_arrive_as_they_are(self, run: Run) -> None:
        assert run(r"printf '\377\000\n\303' ; printf '\251\200' >&2").stdout == b"\xff\x00\n\xc3"

    def test_a_timeout_stops_the_remote_process(self, run: Run, until: Until) -> None:
        result = run("echo started; echo $$ > pid; exec sleep 600", timeout_seconds=1)
        assert (result.exit_code, result.timed_out, result.stdout) == (EXIT_TIMEOUT, True, b"started\n")
        until(lambda: is_gone(run, "pid"))

    def test_a_timeout_stops_the_whole_process_group(self, run: Run, until: Until) -> None:
        result = run("sleep 600 & echo $! > pid; wait", timeout_seconds=1)
        assert result.timed_out
        until(lambda: is_gone(run, "pid"))

    def test_a_child_in_the_background_does_not_hold_the_answer(self, run: Run) -> None:
        result = run("sleep 600 & echo $! > pid; echo now", timeout_seconds=20)
        run("kill -s KILL $(cat pid)")
        assert (result.stdout, result.timed_out) == (b"now\n", False)

    def test_long_output_keeps_head_and_tail_and_counts_the_rest(self, run: Run) -> None:
        result = run("printf HEAD; head -c 20000000 /dev/zero; printf TAIL", keep=10_000)
        assert result.exit_code == 0
        assert result.stdout == b"HEAD" + bytes(9_992) + b"TAIL"
        assert result.stdout_dropped_bytes == 20_000_008 - 10_000
        assert result.stderr_dropped_bytes == 0

    def test_output_at_the_limit_is_whole(self, run: Run) -> None:
        result = run("head -c 1001 /dev/zero | tr '\\0' x", keep=1_001)
        assert (result.stdout, result.stdout_dropped_bytes) == (b"x" * 1_001, 0)

    def test_output_without_end_is_bounded(self, run: Run) -> None:
        # Not by yes(1), which writes gigabytes in that second.
        result = run("while :; do echo no; done", keep=1_000, timeout_seconds=1)
        assert result.timed_out
        assert result.stdout.startswith(b"no\nno\n")
        assert len(result.stdout) == 1_000
        assert result.stdout_dropped_bytes > 0

    def test_an_unseen_end_is_unconfirmed_and_nothing_is_repeated(self, run: Run, backend: BackendUnderTest) -> None:
        with backend.losing_completions(), pytest.raises(ExecUnconfirmed) as unseen:
            run("echo once >> ran")
        assert not unseen.value.settled
        assert run("cat ran").stdout == b"once\n"

    def test_a_command_in_a_deleted_sandbox_is_not_found(self, adapter: Adapter, sandbox: Target, run: Run) -> None:
        adapter.delete(sandbox)
        with pytest.raises(NotFound):
            run("true")


class StreamTests(SuiteFixtures):
    @pytest.fixture
    def follow(self, adapter: Adapter, sandbox: Target) -> Follow:
        needs(adapter, Operation.EXEC_STREAM)

        def follow(command: str, *, quiet: float = 5.0, **request: object) -> Iterator[ExecEvent]:
            return adapter.exec_stream(sandbox, ExecRequest.model_validate({"command": command, **request}), quiet)

        return follow

    def test_a_stream_ends_in_one_exit(self, follow: Follow) -> None:
        events = list(follow("echo out; echo err >&2; exit 3"))
        assert _written(events, "stdout") == b"out\n"
        assert _written(events, "stderr") == b"err\n"
        assert [event.exit_code for event in events if isinstance(event, Exit)] == [3]
        assert isinstance(events[-1], Exit)

    def test_output_comes_while_the_command_runs(self, follow: Follow, run: Run) -> None:
        events = follow("echo one; until [ -e go ]; do sleep 0.02; done; echo two", timeout_seconds=20)
        first = next(event for event in events if isinstance(event, Output))
        assert first == Output("stdout", b"one\n")
        run("touch go")
        rest = list(events)
        assert _written(rest, "stdout") == b"two\n"
        assert _end(rest).exit_code == 0

    def test_a_quiet_command_is_told_to_be_alive(self, follow: Follow, run: Run) -> None:
        events = follow("until [ -e go ]; do sleep 0.02; done", quiet=QUIET_SECONDS, timeout_seconds=20)
        assert isinstance(next(iter(events)), Quiet)
        run("touch go")
        assert isinstance(list(events)[-1], Exit)

    def test_a_streamed_command_is_stopped_by_its_timeout(
        self,
        follow: Follow,
        run: Run,
        until: Until,
    ) -> None:
        events = list(follow("echo $$ > pid; echo started; exec sleep 600", timeout_seconds=1))
        assert _written(events, "stdout") == b"started\n"
        assert (_end(events).exit_code, _end(events).timed_out) == (EXIT_TIMEOUT, True)
        until(lambda: is_gone(run, "pid"))

    def test_all_that_is_written_arrives(self, follow: Follow) -> None:
        events = list(follow("head -c 5000000 /dev/zero | tr '\\0' '\\377'; printf END"))
        assert (
            hashlib.sha256(_written(events, "stdout")).digest() == hashlib.sha256(b"\xff" * 5_000_000 + b"END").digest()
        )

    def test_a_reader_that_goes_away_does_not_stop_the_command(
        self,
        follow: Follow,
        run: Run,
        until: Until,
    ) -> None:
        events = follow(
            "echo one; until [ -e go ]; do sleep 0.02; done; echo two; echo done > done", timeout_seconds=20
        )
        next(iter(events))
        if hasattr(events, "close"):
            events.close()
        del events
        run("touch go")
        until(lambda: run("cat done").stdout == b"done\n")

    def test_an_unseen_end_of_a_stream_is_unconfirmed(
        self,
        follow: Follow,
        backend: BackendUnderTest,
    ) -> None:
        with backend.losing_completions(), pytest.raises(ExecUnconfirmed):
            list(follow("echo once"))

    def test_a_stream_in_a_deleted_sandbox_is_not_found(self, adapter: Adapter, sandbox: Target) -> None:
        needs(adapter, Operation.EXEC_STREAM)
        adapter.delete(sandbox)
        with pytest.raises(NotFound):
            list(adapter.exec_stream(sandbox, ExecRequest(command="true"), 1.0))


def _written(events: list[ExecEvent], stream: str) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, Output) and event.stream == stream)


def _end(events: list[ExecEvent]) -> Exit:
    last = events[-1]
    assert isinstance(last, Exit)
    return last


def is_gone(run: Run, pid_file: str) -> bool:
    """No such process, or only its zombie is left."""
    command = f'pid=$(cat {pid_file}); ! kill -0 $pid 2>/dev/null || grep -q "^State:.Z" /proc/$pid/status'
    return run(command, keep=OUTPUT_BYTES).exit_code == 0
