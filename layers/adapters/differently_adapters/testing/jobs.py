"""Commands that go on by themselves."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from differently_core.contract import Adapter, Operation, Target, supports
from differently_core.errors import InvalidRequest, InvalidState, NotFound
from differently_core.model.exec import EXIT_TIMEOUT, ExecRequest, Job, JobState, Stream

from .commands import ODD_TEXT, is_gone
from .fixtures import Run, SuiteFixtures, Until, needs

LONG = "sleep 600"
STARTS = 6
EXIT_INTERRUPTED = 130
"""128 + SIGINT."""
ALL_JOBS = (Operation.JOB_START, Operation.JOB_STATUS, Operation.JOB_OUTPUT, Operation.JOB_STOP)
Start = Callable[..., Job]
Ended = Callable[[str], Job]
Written = Callable[[str, Stream, int], bytes]


class JobTests(SuiteFixtures):
    @pytest.fixture(autouse=True)
    def _needs_jobs(self, request: pytest.FixtureRequest) -> None:
        if request.function.__name__ in vars(JobTests):
            needs(request.getfixturevalue("adapter"), *ALL_JOBS)

    @pytest.fixture
    def start(self, adapter: Adapter, sandbox: Target) -> Start:
        def start(job: str, command: str | None = None, **request: object) -> Job:
            return adapter.job_start(sandbox, job, ExecRequest.model_validate({"command": command, **request}))

        return start

    @pytest.fixture
    def ended(self, adapter: Adapter, sandbox: Target, until: Until) -> Ended:
        """Wait for a job's end."""

        def ended(job: str) -> Job:
            until(lambda: adapter.job_status(sandbox, job).state is not JobState.RUNNING)
            return adapter.job_status(sandbox, job)

        return ended

    @pytest.fixture
    def written(self, adapter: Adapter, sandbox: Target) -> Written:
        """Read all that an ended job wrote, `step` bytes at a time."""

        def written(job: str, stream: Stream, step: int) -> bytes:
            data = b""
            while True:
                read = adapter.job_output(sandbox, job, stream, len(data), step)
                assert len(read.data) <= step
                data += read.data
                assert read.next == len(data)
                if read.ended:
                    return data

        return written

    def test_a_job_tells_how_it_ended_and_what_it_wrote(self, start: Start, ended: Ended, written: Written) -> None:
        started = start("build", "echo out; echo err >&2; exit 3")
        assert started.id == "build"
        job = ended("build")
        assert (job.state, job.exit_code) == (JobState.EXITED, 3)
        assert (job.stdout_bytes, job.stderr_bytes) == (4, 4)
        assert written("build", "stdout", 100) == b"out\n"
        assert written("build", "stderr", 3) == b"err\n"

    def test_output_is_read_by_cursor_to_the_byte(self, start: Start, ended: Ended, written: Written) -> None:
        start("bytes", r"printf '\000\377\n\200'; head -c 20000 /dev/zero | tr '\0' '\303'; printf '\251'")
        ended("bytes")
        assert written("bytes", "stdout", 7_001) == b"\x00\xff\n\x80" + b"\xc3" * 20_000 + b"\xa9"

    def test_output_past_the_end_is_empty(self, adapter: Adapter, sandbox: Target, start: Start, ended: Ended) -> None:
        start("short", "echo out")
        ended("short")
        read = adapter.job_output(sandbox, "short", "stdout", 4, 100)
        assert (read.data, read.next, read.ended) == (b"", 4, True)

    def test_starting_it_again_returns_the_first(self, start: Start, ended: Ended, run: Run) -> None:
        start("once", "echo ran >> ran", env={"A": "1", "B": "2"})
        ended("once")
        again = start("once", "echo ran >> ran", env={"B": "2", "A": "1"})
        assert again.state is JobState.EXITED
        assert run("cat ran").stdout == b"ran\n"

    def test_overlapping_starts_make_one_job(self, start: Start, ended: Ended, run: Run) -> None:
        with ThreadPoolExecutor(STARTS) as pool:
            list(pool.map(lambda _: start("race", "echo ran >> ran"), range(STARTS)))
        assert ended("race").exit_code == 0
        assert run("cat ran").stdout == b"ran\n"

    @pytest.mark.parametrize(
        "other", [{"command": "false"}, {"env": {"A": "1"}}, {"stdin": ""}, {"cwd": "."}, {"timeout_seconds": 9}]
    )
    def test_another_command_under_the_same_id_is_refused(
        self, start: Start, ended: Ended, other: dict[str, object]
    ) -> None:
        common: dict[str, object] = {"command": "true"}
        start("taken", **common)
        ended("taken")
        with pytest.raises(InvalidState):
            start("taken", **{**common, **other})

    def test_a_job_gets_its_arguments_environment_input_and_cwd(
        self, start: Start, ended: Ended, written: Written, run: Run
    ) -> None:
        run("mkdir 'a b'")
        start(
            "all",
            args=["/bin/sh", "-c", 'printf "%s|" "$0" "$ODD" "$FROM_CREATE"; cat; pwd >&2', ODD_TEXT],
            env={"ODD": ODD_TEXT},
            stdin=ODD_TEXT + "\0" + ODD_TEXT,
            cwd="a b",
        )
        assert ended("all").exit_code == 0
        assert written("all", "stdout", 10_000) == f"{ODD_TEXT}|{ODD_TEXT}|yes|{ODD_TEXT}\0{ODD_TEXT}".encode()
        assert written("all", "stderr", 10_000).endswith(b"/a b\n")

    def test_a_job_without_input_reads_nothing(self, start: Start, ended: Ended) -> None:
        start("closed", "cat", timeout_seconds=20)
        assert ended("closed").state is JobState.EXITED

    def test_a_running_job_is_stopped_with_its_processes(
        self,
        adapter: Adapter,
        sandbox: Target,
        start: Start,
        run: Run,
        until: Until,
    ) -> None:
        start("long", f"sleep 600 & echo $! > pid; {LONG}", timeout_seconds=600)
        until(lambda: run("test -s pid").exit_code == 0)
        assert adapter.job_status(sandbox, "long").state is JobState.RUNNING
        stopped = adapter.job_stop(sandbox, "long")
        assert stopped.state is JobState.STOPPED
        until(lambda: is_gone(run, "pid"))
        assert adapter.job_stop(sandbox, "long") == stopped

    def test_stopping_an_ended_job_changes_nothing(
        self, adapter: Adapter, sandbox: Target, start: Start, ended: Ended
    ) -> None:
        start("done", "exit 5")
        before = ended("done")
        assert adapter.job_stop(sandbox, "done") == before

    def test_an_interrupted_job_ends_by_itself(
        self, adapter: Adapter, sandbox: Target, start: Start, ended: Ended
    ) -> None:
        needs(adapter, Operation.JOB_INTERRUPT)
        start("polite", LONG, timeout_seconds=600)
        adapter.job_interrupt(sandbox, "polite")
        job = ended("polite")
        assert (job.state, job.exit_code) == (JobState.EXITED, EXIT_INTERRUPTED)
        assert adapter.job_interrupt(sandbox, "polite") == job

    def test_the_timeout_of_a_job_ends_it(self, start: Start, ended: Ended) -> None:
        start("slow", LONG, timeout_seconds=1)
        job = ended("slow")
        assert (job.state, job.exit_code) == (JobState.TIMED_OUT, EXIT_TIMEOUT)

    def test_another_client_finds_the_job(
        self,
        restarted: Adapter,
        sandbox: Target,
        start: Start,
        ended: Ended,
    ) -> None:
        start("shared", "echo out")
        ended("shared")
        assert restarted.job_status(sandbox, "shared").state is JobState.EXITED
        assert restarted.job_output(sandbox, "shared", "stdout", 0, 100).data == b"out\n"

    def test_a_job_that_never_was_is_not_found(self, adapter: Adapter, sandbox: Target) -> None:
        for call in (
            lambda: adapter.job_status(sandbox, "nothing"),
            lambda: adapter.job_output(sandbox, "nothing", "stdout", 0, 10),
            lambda: adapter.job_stop(sandbox, "nothing"),
        ):
            with pytest.raises(NotFound):
                call()
        if supports(adapter, Operation.JOB_INTERRUPT):
            with pytest.raises(NotFound):
                adapter.job_interrupt(sandbox, "nothing")

    @pytest.mark.parametrize("job", ["", "../up", "a/b", "a b", "-x", "x" * 65])
    def test_a_job_id_that_is_none_is_refused(self, start: Start, job: str) -> None:
        with pytest.raises(InvalidRequest):
            start(job, "true")
