"""The job launcher, run by a real shell over nothing but a call that runs a command and waits."""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from differently_adapters import jobs
from differently_adapters.jobs import PART_BYTES, READ_BYTES_MAX, ShellJobs
from differently_adapters.testing import HostShell
from differently_core.contract import CommandResult, Owner, Target
from differently_core.errors import BackendError, ExecUnconfirmed, InvalidState, NotFound, ProviderUnavailable
from differently_core.model.exec import ExecRequest, Job, JobState
from differently_core.runtime.clock import SystemClock

TARGET = Target(Owner("inst_a", "sbx_a"), "ref")
SHELLS = [shell for shell in ("sh", "bash", "busybox") if shutil.which(shell)]


@dataclass
class Sandbox:
    """`shell` runs the launcher's scripts; every request that it was sent is kept."""

    shell: HostShell
    program: str = "sh"
    env: dict[str, str] = field(default_factory=dict)
    sent: list[ExecRequest] = field(default_factory=list)

    def call(self, target: Target, request: ExecRequest, output_bytes_max: int) -> CommandResult:
        self.sent.append(request)
        words = {"sh": ["/bin/sh"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}[self.program]
        through = request.model_copy(update={"command": None, "args": [*words, "-c", request.command]})
        return self.shell.run("box", self.env, through, output_bytes_max)

    @property
    def home(self) -> Path:
        return self.shell.home("box")


@pytest.fixture(params=SHELLS)
def sandbox(request: pytest.FixtureRequest, tmp_path: Path) -> Sandbox:
    return Sandbox(HostShell(tmp_path, SystemClock()), request.param)


@pytest.fixture
def shell_jobs(sandbox: Sandbox) -> ShellJobs:
    return ShellJobs(sandbox.call, lambda _: f"{sandbox.home}/kept jobs")


@pytest.fixture
def ended(shell_jobs: ShellJobs) -> Callable[[str], Job]:
    def ended(job: str) -> Job:
        until(lambda: shell_jobs.status(TARGET, job).state is not JobState.RUNNING)
        return shell_jobs.status(TARGET, job)

    return ended


def until(condition: Callable[[], bool]) -> None:
    clock = SystemClock()
    for _ in range(3_000):
        if condition():
            return
        clock.sleep(0.01)
    pytest.fail("waited too long for a condition")


def read_all(shell_jobs: ShellJobs, job: str) -> bytes:
    data = b""
    while True:
        read = shell_jobs.output(TARGET, job, "stdout", len(data), 10**9)
        data += read.data
        if read.ended:
            return data


def noise(seed: int, length: int) -> str:
    """Characters that shells care about, control characters, and anything else that is text."""
    chance = random.Random(seed)
    pools: list[Callable[[], str]] = [
        lambda: chance.choice("'\"\\$`!*?[]{}()<>|&;#~=%^ \t\n\r-"),
        lambda: chr(chance.randrange(1, 256)),
        lambda: chr(chance.choice([chance.randrange(0x100, 0xD800), chance.randrange(0xE000, 0x110000)])),
    ]
    return "".join(chance.choice(pools)() for _ in range(length))


def test_ten_thousand_odd_characters_arrive_as_they_are(
    shell_jobs: ShellJobs, sandbox: Sandbox, ended: Callable[[str], Job]
) -> None:
    for seed in range(5):
        text = noise(seed, 2_000)
        request = ExecRequest(
            args=["/bin/sh", "-c", 'printf %s "$1"; printf %s "$VALUE" > value; cat > input', "name", text],
            env={"VALUE": text[::-1]},
            stdin=f"\0{text}\0\0",
        )
        shell_jobs.start(TARGET, f"n{seed}", request)
        assert ended(f"n{seed}").exit_code == 0
        assert read_all(shell_jobs, f"n{seed}") == text.encode()
        assert (sandbox.home / "value").read_bytes() == text[::-1].encode()
        assert (sandbox.home / "input").read_bytes() == f"\0{text}\0\0".encode()


def test_a_command_line_of_odd_characters_is_run_as_written(shell_jobs: ShellJobs, ended: Callable[[str], Job]) -> None:
    text = noise(11, 2_000).replace("'", "")
    shell_jobs.start(TARGET, "line", ExecRequest(command=f"printf %s '{text}'"))
    assert ended("line").exit_code == 0
    assert read_all(shell_jobs, "line") == text.encode()


def test_names_that_shells_own_can_be_set(shell_jobs: ShellJobs, ended: Callable[[str], Job]) -> None:
    owned = {"UID": "7", "PPID": "8", "SHELLOPTS": "x", "LINENO": "9", "BASH_ENV": "/no/file"}
    shell_jobs.start(TARGET, "owned", ExecRequest(args=["/usr/bin/env"], env={"PLAIN": "p", **owned}))
    assert ended("owned").exit_code == 0
    lines = read_all(shell_jobs, "owned").decode().splitlines()
    assert {f"{name}={value}" for name, value in owned.items()} <= set(lines)
    assert "PLAIN=p" in lines


def test_a_path_of_the_sandboxes_own_is_the_commands_and_does_not_hinder_us(
    shell_jobs: ShellJobs, sandbox: Sandbox, ended: Callable[[str], Job]
) -> None:
    request = ExecRequest(args=["/bin/sh", "-c", "echo $PATH"])
    if sandbox.program == "sh":  # the others have to be found themselves
        sandbox.env["PATH"] = "/nowhere"
    shell_jobs.start(TARGET, "path", request)
    assert ended("path").exit_code == 0
    path = read_all(shell_jobs, "path").decode().strip()
    assert path == sandbox.env.get("PATH", path)


def test_a_request_of_many_parts_arrives_whole(
    shell_jobs: ShellJobs, sandbox: Sandbox, ended: Callable[[str], Job]
) -> None:
    text = "é'🙂" * 300_000
    shell_jobs.start(TARGET, "big", ExecRequest(command="cat", stdin=text, env={"A": "v'" * 16_000}))
    assert len(sandbox.sent) > 2
    assert all(len((request.stdin or "").encode()) <= PART_BYTES + 100 for request in sandbox.sent)
    assert ended("big").stdout_bytes == len(text.encode())
    assert hashlib.sha256(read_all(shell_jobs, "big")).digest() == hashlib.sha256(text.encode()).digest()
    assert sorted(path.name for path in (sandbox.home / "kept jobs").iterdir()) == ["big"]


def test_nothing_secret_is_in_a_process_list_or_left_on_the_disk(
    shell_jobs: ShellJobs, sandbox: Sandbox, ended: Callable[[str], Job]
) -> None:
    request = ExecRequest(
        command="until [ -e go ]; do ps -eo args | grep -c '[c]anary' >> seen; done",
        env={"TOKEN": "canary-env"},
        stdin="canary-stdin",
    )
    shell_jobs.start(TARGET, "secret", request)
    assert not any("canary" in (sent.command or "") for sent in sandbox.sent)
    until(lambda: (sandbox.home / "seen").exists() and (sandbox.home / "seen").stat().st_size > 4)
    (sandbox.home / "go").touch()
    ended("secret")
    # The command's own text is in the list, as any command's is; it holds the pattern and not the word.
    assert set((sandbox.home / "seen").read_text().split()) == {"0"}
    for path in (sandbox.home / "kept jobs").rglob("*"):
        assert path.is_dir() or b"canary" not in path.read_bytes()


def test_output_is_bounded_by_each_read(shell_jobs: ShellJobs, ended: Callable[[str], Job]) -> None:
    shell_jobs.start(TARGET, "long", ExecRequest(command="head -c 1300000 /dev/zero"))
    ended("long")
    first = shell_jobs.output(TARGET, "long", "stdout", 0, 10**9)
    assert (len(first.data), first.next, first.ended) == (READ_BYTES_MAX, READ_BYTES_MAX, False)
    assert read_all(shell_jobs, "long") == bytes(1_300_000)


def test_without_base64_output_travels_as_hex(
    shell_jobs: ShellJobs, sandbox: Sandbox, ended: Callable[[str], Job], tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    shell_jobs.start(TARGET, "hex", ExecRequest(command=r"printf '\000\377\n'"))
    ended("hex")
    hidden = ShellJobs(
        lambda target, request, most: sandbox.call(
            target, request.model_copy(update={"command": (request.command or "").replace("v base64", "v no64")}), most
        ),
        lambda _: f"{sandbox.home}/kept jobs",
    )
    assert hidden.output(TARGET, "hex", "stdout", 0, 10).data == b"\x00\xff\n"


def test_output_of_a_running_job_is_read_as_it_grows(shell_jobs: ShellJobs, sandbox: Sandbox) -> None:
    shell_jobs.start(TARGET, "grow", ExecRequest(command="echo one; until [ -e go ]; do sleep 0.01; done; echo two"))
    until(lambda: shell_jobs.output(TARGET, "grow", "stdout", 0, 100).data == b"one\n")
    assert not shell_jobs.output(TARGET, "grow", "stdout", 4, 100).ended
    (sandbox.home / "go").touch()
    until(lambda: shell_jobs.output(TARGET, "grow", "stdout", 4, 100).ended)
    assert shell_jobs.output(TARGET, "grow", "stdout", 4, 100).data == b"two\n"


def test_an_answer_that_was_lost_is_asked_for_again(
    shell_jobs: ShellJobs, sandbox: Sandbox, ended: Callable[[str], Job]
) -> None:
    def forgetful(target: Target, request: ExecRequest, most: int) -> CommandResult:
        sandbox.call(target, request, most)
        raise ExecUnconfirmed("The answer was lost.")

    request = ExecRequest(command="echo ran >> ran")
    with pytest.raises(ExecUnconfirmed):
        ShellJobs(forgetful, lambda _: f"{sandbox.home}/kept jobs").start(TARGET, "again", request)
    shell_jobs.start(TARGET, "again", request)
    assert ended("again").state is JobState.EXITED
    assert (sandbox.home / "ran").read_text() == "ran\n"


def test_a_command_that_arrived_cut_off_is_not_started(shell_jobs: ShellJobs, sandbox: Sandbox) -> None:
    def cutting(target: Target, request: ExecRequest, most: int) -> CommandResult:
        return sandbox.call(target, request.model_copy(update={"stdin": (request.stdin or "")[:-5]}), most)

    request = ExecRequest(command="touch ran")
    with pytest.raises(ProviderUnavailable) as cut:
        ShellJobs(cutting, lambda _: f"{sandbox.home}/kept jobs").start(TARGET, "cut", request)
    assert cut.value.settled
    shell_jobs.start(TARGET, "cut", request)
    until(lambda: (sandbox.home / "ran").exists())


def test_a_claim_that_was_never_filled_is_lost(shell_jobs: ShellJobs, sandbox: Sandbox) -> None:
    (sandbox.home / "kept jobs" / "torn").mkdir(parents=True)
    assert shell_jobs.start(TARGET, "torn", ExecRequest(command="true")).state is JobState.LOST


def test_a_job_without_processes_and_without_an_exit_is_lost(shell_jobs: ShellJobs, sandbox: Sandbox) -> None:
    shell_jobs.start(TARGET, "killed", ExecRequest(command="exec sleep 15", timeout_seconds=15))
    kill(sandbox, "supervisor", "child")
    until(lambda: shell_jobs.status(TARGET, "killed").state is JobState.LOST)
    job = shell_jobs.status(TARGET, "killed")
    assert job.exit_code is None
    assert shell_jobs.stop(TARGET, "killed").state in {JobState.LOST, JobState.STOPPED}


def test_a_number_given_to_another_process_does_not_pass_for_the_job(shell_jobs: ShellJobs, sandbox: Sandbox) -> None:
    shell_jobs.start(TARGET, "reused", ExecRequest(command="exec sleep 15", timeout_seconds=15))
    kill(sandbox, "supervisor", "child")
    for name in ("supervisor", "child"):  # our own process got both numbers
        (recorded(sandbox) / name).write_text(f"{os.getpid()} 12345\n")
    until(lambda: shell_jobs.status(TARGET, "reused").state is JobState.LOST)
    shell_jobs.stop(TARGET, "reused")  # and is not killed


def test_the_timeout_holds_without_the_supervisor(shell_jobs: ShellJobs, sandbox: Sandbox) -> None:
    shell_jobs.start(TARGET, "alone", ExecRequest(command="exec sleep 600", timeout_seconds=1))
    until(lambda: (recorded(sandbox) / "child").exists())
    kill(sandbox, "supervisor")
    until(lambda: shell_jobs.status(TARGET, "alone").state is not JobState.RUNNING)
    assert shell_jobs.status(TARGET, "alone").state is JobState.TIMED_OUT


def test_a_command_that_ignores_the_first_signal_is_ended_by_the_second(
    shell_jobs: ShellJobs, sandbox: Sandbox
) -> None:
    request = ExecRequest(command="trap '' TERM; touch up; while :; do sleep 0.1; done", timeout_seconds=600)
    shell_jobs.start(TARGET, "stubborn", request)
    until(lambda: (sandbox.home / "up").exists())
    job = shell_jobs.stop(TARGET, "stubborn")
    assert (job.state, job.exit_code) == (JobState.STOPPED, 137)


def test_a_job_that_ends_leaves_nothing_running(
    shell_jobs: ShellJobs, sandbox: Sandbox, ended: Callable[[str], Job]
) -> None:
    shell_jobs.start(TARGET, "tidy", ExecRequest(command="true", timeout_seconds=5_432))
    ended("tidy")
    until(lambda: not any("5432" in line for line in command_lines()))


def test_a_job_that_cannot_be_kept_is_refused(sandbox: Sandbox) -> None:
    (sandbox.home / "file").touch()
    with pytest.raises(ProviderUnavailable) as refused:
        ShellJobs(sandbox.call, lambda _: f"{sandbox.home}/file/jobs").start(TARGET, "x", ExecRequest(command="true"))
    assert refused.value.settled


@pytest.mark.parametrize("answer", [b"", b"nonsense\n", b"job running\n", b"job exited x - 0 0\n", b"\xff\n"])
def test_an_answer_that_makes_no_sense_is_the_backends_fault(answer: bytes) -> None:
    result = CommandResult(0, answer, b"", 1)
    with pytest.raises(BackendError):
        ShellJobs(lambda *_: result).status(TARGET, "job")


def test_a_damaged_answer_is_not_taken_for_output() -> None:
    good = CommandResult(0, b"job exited 0 1 4 0\nbase64\nb3V0Cg==\n", b"", 1)
    assert ShellJobs(lambda *_: good).output(TARGET, "job", "stdout", 0, 10).data == b"out\n"
    with pytest.raises(BackendError):
        ShellJobs(lambda *_: replace(good, stdout=good.stdout[:-4])).output(TARGET, "job", "stdout", 0, 10)


def test_an_equal_request_has_an_equal_digest_whatever_its_order() -> None:
    one = ExecRequest(command="true", env={"A": "1", "B": "2"})
    other = ExecRequest(command="true", env={"B": "2", "A": "1"})
    assert jobs._digest(one) == jobs._digest(other)
    assert re.fullmatch("[0-9a-f]{64}", jobs._digest(one))


def test_the_same_id_for_another_command_is_refused_even_when_it_is_long(
    shell_jobs: ShellJobs, sandbox: Sandbox, ended: Callable[[str], Job]
) -> None:
    shell_jobs.start(TARGET, "taken", ExecRequest(command="true"))
    ended("taken")
    with pytest.raises(InvalidState):
        shell_jobs.start(TARGET, "taken", ExecRequest(command="cat", stdin="x" * 1_000_000))
    assert [path.name for path in (sandbox.home / "kept jobs").iterdir()] == ["taken"]


def recorded(sandbox: Sandbox) -> Path:
    (job,) = (sandbox.home / "kept jobs").iterdir()
    return job


def kill(sandbox: Sandbox, *names: str) -> None:
    """Kill what the job recorded under these names, once all of it is there."""
    until(lambda: all(len(_words(recorded(sandbox) / name)) == 2 for name in ("supervisor", "child")))
    for name in names:
        os.kill(int(_words(recorded(sandbox) / name)[0]), signal.SIGKILL)


def _words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def command_lines() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def test_without_setsid_the_first_process_is_still_ended_and_told(sandbox: Sandbox) -> None:
    plain = ShellJobs(
        lambda target, request, most: sandbox.call(
            target, request.model_copy(update={"command": (request.command or "").replace("v setsid", "v nope")}), most
        ),
        lambda _: f"{sandbox.home}/kept jobs",
    )
    plain.start(TARGET, "ends", ExecRequest(command="exit 3"))
    plain.start(TARGET, "slow", ExecRequest(command="exec sleep 600", timeout_seconds=1))
    plain.start(TARGET, "long", ExecRequest(command="exec sleep 15", timeout_seconds=15))
    until(lambda: plain.status(TARGET, "ends").exit_code == 3)
    assert plain.stop(TARGET, "long").state is JobState.STOPPED
    until(lambda: plain.status(TARGET, "slow").state is JobState.TIMED_OUT)


def test_an_interrupt_is_heard_and_the_command_is_left_its_time(
    shell_jobs: ShellJobs, sandbox: Sandbox, ended: Callable[[str], Job]
) -> None:
    command = (
        "trap 'echo heard; until [ -e go ]; do sleep 0.02; done; exit 7' INT; touch up; while :; do sleep 0.02; done"
    )
    shell_jobs.start(TARGET, "polite", ExecRequest(command=command, timeout_seconds=600))
    until(lambda: (sandbox.home / "up").exists())
    assert shell_jobs.interrupt(TARGET, "polite").state is JobState.RUNNING
    until(lambda: read_now(shell_jobs, "polite") == b"heard\n")
    (sandbox.home / "go").touch()
    job = ended("polite")
    assert (job.state, job.exit_code) == (JobState.EXITED, 7)
    assert shell_jobs.interrupt(TARGET, "polite") == job


def test_an_interrupt_reaches_the_whole_group(
    shell_jobs: ShellJobs, sandbox: Sandbox, ended: Callable[[str], Job]
) -> None:
    shell_jobs.start(TARGET, "group", ExecRequest(command="touch up; sleep 6543; echo never", timeout_seconds=600))
    until(lambda: (sandbox.home / "up").exists())
    shell_jobs.interrupt(TARGET, "group")
    assert (ended("group").state, ended("group").exit_code) == (JobState.EXITED, 128 + signal.SIGINT)
    until(lambda: not any("sleep 6543" in line for line in command_lines()))


def test_an_interrupt_of_a_job_that_is_just_starting_is_not_lost(
    shell_jobs: ShellJobs, ended: Callable[[str], Job]
) -> None:
    shell_jobs.start(TARGET, "early", ExecRequest(command="exec sleep 600", timeout_seconds=600))
    shell_jobs.interrupt(TARGET, "early")
    assert (ended("early").state, ended("early").exit_code) == (JobState.EXITED, 128 + signal.SIGINT)


def test_a_job_that_is_not_there_cannot_be_interrupted(shell_jobs: ShellJobs) -> None:
    with pytest.raises(NotFound):
        shell_jobs.interrupt(TARGET, "nothing")


def read_now(shell_jobs: ShellJobs, job: str) -> bytes:
    return shell_jobs.output(TARGET, job, "stdout", 0, 100).data
