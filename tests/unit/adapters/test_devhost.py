"""What is particular to devhost: what commands get, what they may leave behind, and what a crash does."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from differently_adapters.processes import Command, Running, run, start
from differently_adapters.providers.devhost import DevhostAdapter, DevhostConfig, tracking
from differently_adapters.testing import a_create_request
from differently_core.contract import (
    AdapterContext,
    CommandResult,
    Exit,
    InstanceState,
    Output,
    Owner,
    SnapshotInfo,
    SnapshotKind,
    SnapshotRequest,
    SnapshotState,
    Target,
)
from differently_core.errors import (
    DifferentlyError,
    InvalidRequest,
    InvalidState,
    NotFound,
    PayloadTooLarge,
    SandboxFailed,
    UnsupportedOperation,
)
from differently_core.model.exec import FILE_BYTES_MAX, ExecRequest, JobState
from differently_core.runtime.clock import SystemClock
from differently_core.runtime.ids import SystemIds

MIB = 1_048_576
Run = Callable[..., CommandResult]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    return made


def client(root: Path) -> DevhostAdapter:
    return DevhostAdapter(AdapterContext("dev", "inst_any", DevhostConfig(root=root), SystemClock()))


@pytest.fixture
def adapter(root: Path) -> DevhostAdapter:
    return client(root)


@pytest.fixture
def target(adapter: DevhostAdapter) -> Iterator[Target]:
    ids = SystemIds(SystemClock())
    owner = Owner(ids.new("inst"), ids.new("sbx"))
    adapter.create(a_create_request(owner, {"SECRET": "canary"}), 5.0)
    yield Target(owner, owner.sandbox)
    adapter.delete(Target(owner))


@pytest.fixture
def place(root: Path, target: Target) -> Path:
    return root / target.owner.installation / target.owner.sandbox


@pytest.fixture
def run_in(adapter: DevhostAdapter, target: Target) -> Run:
    def run_in(command: str | None = None, **request: object) -> CommandResult:
        return adapter.exec(target, ExecRequest.model_validate({"command": command, **request}), MIB)

    return run_in


def alive(pid: int) -> bool:
    found = tracking._read(pid)
    return found is not None and not found.zombie


def until(condition: Callable[[], bool]) -> None:
    clock = SystemClock()
    for _ in range(3_000):
        if condition():
            return
        clock.sleep(0.01)
    pytest.fail("waited too long for a condition")


# --- what a command gets ---


def test_the_environment_is_exactly_what_was_given(run_in: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SESSION_TOKEN", "DIFFERENTLY_MASTER_KEY", "GITHUB_TOKEN"):
        monkeypatch.setenv(name, "canary")
    names = {line.split("=")[0] for line in run_in("env", env={"MINE": "1"}).stdout.decode().splitlines()}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {"PATH", "HOME", "TMPDIR", "LANG", "SECRET", "SANDBOX_ID", "MINE"}
    assert run_in('printf %s "$HOME|$TMPDIR"').stdout.decode() == f"{place}/home|{place}/tmp"


def test_no_file_of_ours_is_open_in_a_command(run_in: Run, tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        shown = run_in("ls -l /proc/self/fd").stdout.decode()
    assert str(tmp_path / "open") not in shown


def test_a_command_leads_its_own_session(run_in: Run) -> None:
    pid, group, session = run_in("ps -o pid=,pgid=,sid= -p $$").stdout.split()
    assert pid == group == session
    assert int(session) != os.getsid(0)


def test_a_bad_cwd_is_named(run_in: Run) -> None:
    for cwd in ("missing", "/no/such/place"):
        with pytest.raises(InvalidRequest, match="cwd") as refused:
            run_in("true", cwd=cwd)
        assert refused.value.details["field"] == "cwd"


def test_an_absolute_cwd_is_the_hosts(run_in: Run) -> None:
    assert run_in("pwd", cwd="/").stdout == b"/\n"


def test_a_file_that_cannot_be_executed_is_a_result(run_in: Run) -> None:
    assert run_in("echo text > plain; exit 0").exit_code == 0
    assert run_in(args=["./plain"]).exit_code == 126


def test_a_command_longer_than_the_host_takes_is_refused(run_in: Run) -> None:
    with pytest.raises(PayloadTooLarge):
        run_in("# " + "é" * 100_000)


def test_a_command_may_remove_its_own_home(run_in: Run) -> None:
    run_in('rm -rf "$HOME"')
    assert run_in("pwd && echo back").exit_code == 0


def test_two_gigabytes_of_output_keep_memory_flat() -> None:
    """In a process of its own, so that its peak of memory is its own."""
    script = """
import resource
from differently_adapters.processes import Command, run, start
from differently_core.runtime.clock import SystemClock
command = Command(["head", "-c", "2000000000", "/dev/zero"], {"PATH": "/usr/bin:/bin"}, "/", None, 60)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = run(start(command, SystemClock()), 1048576)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(len(result.stdout), result.stdout_dropped_bytes, after - before)
"""
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=100)
    kept, dropped, grown_kib = map(int, shown.stdout.split())
    assert (kept, dropped) == (MIB, 2_000_000_000 - MIB)
    assert grown_kib < 16 * 1024


# --- processes that are left ---


def test_no_zombie_stays(adapter: DevhostAdapter, target: Target, run_in: Run) -> None:
    run_in("true")
    list(adapter.exec_stream(target, ExecRequest(command="true"), 1.0))
    stream = adapter.exec_stream(target, ExecRequest(command="echo one; exec sleep 0.1"), 1.0)
    assert next(stream) == Output("stdout", b"one\n")
    del stream
    until(lambda: not any(process.zombie and process.parent == os.getpid() for process in tracking._all()))


def test_the_timeout_holds_when_the_reader_has_gone(adapter: DevhostAdapter, target: Target, run_in: Run) -> None:
    request = ExecRequest(command="echo $$ > pid; echo on; while :; do echo on; done", timeout_seconds=1)
    stream = adapter.exec_stream(target, request, 1.0)
    next(stream)
    del stream
    pid = int(run_in("cat pid").stdout)
    until(lambda: not alive(pid))


def test_the_timeout_holds_while_the_reader_sleeps(adapter: DevhostAdapter, target: Target, run_in: Run) -> None:
    stream = adapter.exec_stream(target, ExecRequest(command="echo $$ > pid; exec yes", timeout_seconds=1), 1.0)
    next(stream)
    pid = int(run_in("cat pid").stdout)
    until(lambda: not alive(pid))  # it waits on its full pipe, and nobody reads
    last = list(stream)[-1]
    assert isinstance(last, Exit)
    assert last.timed_out


def test_streams_leave_no_thread_behind(adapter: DevhostAdapter, target: Target) -> None:
    for _ in range(5):
        list(adapter.exec_stream(target, ExecRequest(command="true"), 1.0))
    until(lambda: not any(thread.name == "exec-stream" for thread in threading.enumerate()))


def test_delete_ends_every_process_even_after_a_restart(
    root: Path, target: Target, run_in: Run, adapter: DevhostAdapter
) -> None:
    run_in("sleep 600 & echo $! > a; setsid sleep 600 & echo $! > b; (setsid sh -c 'sleep 600; :' & echo $! > c)")
    adapter.job_start(target, "job", ExecRequest(command="echo $$ > d; exec sleep 600", timeout_seconds=600))
    until(lambda: run_in("test -s d").exit_code == 0)
    pids = [int(run_in(f"cat {name}").stdout) for name in "abcd"]
    assert all(map(alive, pids))
    client(root).delete(target)
    assert not any(map(alive, pids))


def test_delete_ends_a_group_whose_environment_was_cleared(
    run_in: Run, target: Target, adapter: DevhostAdapter
) -> None:
    """Only the record of the group tells whose it is."""
    stream = adapter.exec_stream(
        target, ExecRequest(command="echo $$; exec env -i sleep 600", timeout_seconds=600), 1.0
    )
    first = next(stream)
    assert isinstance(first, Output)
    pid = int(first.data)
    until(lambda: not tracking._has_marker(pid, f"{tracking.MARKER}={target.owner.sandbox}".encode()))
    adapter.delete(target)
    assert not alive(pid)
    list(stream)


def test_delete_leaves_a_process_that_got_a_recorded_number(
    place: Path, target: Target, adapter: DevhostAdapter
) -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as stranger:
        (place / "processes" / str(stranger.pid)).write_text("12345")
        adapter.delete(target)
        assert stranger.poll() is None
        stranger.kill()


def test_delete_ends_a_command_that_is_waited_for(adapter: DevhostAdapter, target: Target, run_in: Run) -> None:
    results: list[CommandResult] = []
    waiting = threading.Thread(target=lambda: results.append(run_in("echo $$ > pid; exec sleep 600")))
    waiting.start()
    until(lambda: run_in("test -s pid").exit_code == 0)
    adapter.delete(target)
    waiting.join(10)
    assert [result.exit_code for result in results] == [128 + signal.SIGKILL]


def test_an_ended_command_leaves_no_record(run_in: Run, place: Path) -> None:
    run_in("true")
    assert list((place / "processes").iterdir()) == []


# --- directories ---


@pytest.mark.parametrize("ref", ["..", ".", "", "../../etc", "/etc", "sbx_short", "sbx_01KDVDNA00TTTS2Q260NXWP02Z/x"])
def test_a_ref_that_is_no_sandbox_id_is_refused(adapter: DevhostAdapter, target: Target, ref: str) -> None:
    for call in (adapter.get, lambda odd: adapter.exec(odd, ExecRequest(command="true"), 10)):
        with pytest.raises(InvalidRequest):
            call(Target(target.owner, ref))
        with pytest.raises(InvalidRequest):
            call(Target(Owner(target.owner.installation, ref)))


@pytest.mark.parametrize("installation", ["..", "", "a/b", ".hidden", "a\0b"])
def test_an_installation_that_is_no_name_is_refused(adapter: DevhostAdapter, target: Target, installation: str) -> None:
    for call in (
        lambda: adapter.list(installation),
        lambda: adapter.get(Target(Owner(installation, target.owner.sandbox))),
    ):
        with pytest.raises(InvalidRequest):
            call()


def test_what_may_be_secret_is_private(place: Path) -> None:
    for name in ("meta.json", "env.json"):
        assert stat.S_IMODE((place / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert "canary" not in (place / "meta.json").read_text()


def test_a_create_cut_off_leaves_nothing_that_counts(adapter: DevhostAdapter, root: Path, target: Target) -> None:
    left = root / target.owner.installation / f".new-{target.owner.sandbox}-x"
    (left / "home").mkdir(parents=True)
    assert len(adapter.list(target.owner.installation)) == 1
    adapter.delete(target)
    assert list((root / target.owner.installation).iterdir()) == []


@pytest.mark.parametrize("cut_after", ["mark", "rename"])
def test_a_delete_cut_off_is_finished_by_the_next(
    adapter: DevhostAdapter, place: Path, target: Target, cut_after: str
) -> None:
    if cut_after == "mark":
        (place / "deleting").touch()
        with pytest.raises(InvalidState):
            adapter.exec(target, ExecRequest(command="true"), 10)
        assert len(adapter.list(target.owner.installation)) == 1
    else:
        place.rename(place.with_name(f".gone-{place.name}"))
        assert adapter.list(target.owner.installation) == []
    adapter.delete(target)
    assert list(place.parent.iterdir()) == []


def test_nothing_starts_in_a_sandbox_that_is_being_deleted(
    adapter: DevhostAdapter, place: Path, target: Target
) -> None:
    (place / "deleting").touch()
    for call in (
        lambda: adapter.exec_stream(target, ExecRequest(command="true"), 1.0),
        lambda: adapter.job_start(target, "job", ExecRequest(command="true")),
        lambda: adapter.file_write(target, "file", [b""]),
        lambda: adapter.create(a_create_request(target.owner), 5.0),
    ):
        with pytest.raises(InvalidState):
            call()


def test_a_slow_sender_blocks_no_delete(adapter: DevhostAdapter, target: Target, place: Path) -> None:
    def slow() -> Iterator[bytes]:
        yield b"first"
        adapter.delete(target)
        yield b"second"

    with pytest.raises(NotFound):
        adapter.file_write(target, "folder/file", slow())
    assert not place.exists()


# --- files ---


def test_links_that_lead_out_are_refused(adapter: DevhostAdapter, target: Target, run_in: Run, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    run_in(f"ln -s {outside} folder; ln -s {outside}/kept file; ln -s loop loop; ln -s {outside}/new new")
    for path in ("folder/kept", "file", "loop", "new", "folder/new"):
        with pytest.raises(InvalidRequest):
            adapter.file_read(target, path)
        with pytest.raises(InvalidRequest):
            adapter.file_write(target, path, [b"changed"])
        with pytest.raises(InvalidRequest):
            adapter.file_stat(target, path)
    with pytest.raises(InvalidRequest):
        adapter.file_list(target, "folder")
    with pytest.raises(InvalidRequest):
        adapter.file_delete(target, "folder/kept")
    adapter.file_delete(target, "folder")  # the link itself is in the home
    adapter.file_delete(target, "file")
    assert [path.name for path in outside.iterdir()] == ["kept"]
    assert (outside / "kept").read_text() == "kept"


def test_links_inside_are_followed(adapter: DevhostAdapter, target: Target, run_in: Run) -> None:
    run_in("mkdir real; ln -s real link; ln -s real/file name")
    adapter.file_write(target, "link/file", [b"one"])
    adapter.file_write(target, "name", [b"two"])
    assert run_in("cat real/file; test -L name && echo still a link").stdout == b"twostill a link\n"


def test_an_absolute_path_must_lie_in_the_home(adapter: DevhostAdapter, target: Target, place: Path) -> None:
    adapter.file_write(target, f"{place}/home/file", [b"in"])
    assert b"".join(adapter.file_read(target, "file").chunks) == b"in"
    for path in ("/etc/passwd", f"{place}/meta.json", f"{place}/env.json", "/"):
        with pytest.raises(InvalidRequest):
            adapter.file_read(target, path)


def test_the_home_itself_stays(adapter: DevhostAdapter, target: Target, place: Path) -> None:
    for path in (".", "", f"{place}/home"):
        with pytest.raises(InvalidRequest):
            adapter.file_delete(target, path)
        with pytest.raises(InvalidRequest):
            adapter.file_write(target, path, [b""])
        assert adapter.file_list(target, path) == []


def test_what_is_no_regular_file_is_refused(adapter: DevhostAdapter, target: Target, run_in: Run) -> None:
    run_in("mkfifo pipe")
    with pytest.raises(InvalidRequest):
        adapter.file_read(target, "pipe")


def test_a_name_that_is_not_utf8_is_shown(adapter: DevhostAdapter, target: Target, run_in: Run) -> None:
    run_in(r"touch $(printf 'a\377b')")
    assert [entry.name for entry in adapter.file_list(target, "")] == ["a\N{REPLACEMENT CHARACTER}b"]


def test_a_replaced_script_stays_executable(adapter: DevhostAdapter, target: Target, run_in: Run) -> None:
    run_in("echo echo one > run; chmod 755 run")
    adapter.file_write(target, "run", [b"#!/bin/sh\necho two\n"])
    assert run_in("./run").stdout == b"two\n"


def test_a_file_over_the_limit_cannot_be_read(adapter: DevhostAdapter, target: Target, run_in: Run) -> None:
    run_in(f"truncate -s {FILE_BYTES_MAX + 1} big")
    with pytest.raises(PayloadTooLarge):
        adapter.file_read(target, "big")


def test_a_file_that_shrinks_while_it_is_read_is_no_whole_file(
    adapter: DevhostAdapter, target: Target, run_in: Run
) -> None:
    run_in("truncate -s 1000000 file")
    content = adapter.file_read(target, "file")
    next(content.chunks)
    run_in("truncate -s 10 file")
    with pytest.raises(DifferentlyError):
        list(content.chunks)


def test_what_a_sender_raises_is_its_own(adapter: DevhostAdapter, target: Target, place: Path) -> None:
    def cut() -> Iterator[bytes]:
        yield b"half"
        raise ConnectionError("the client went away")

    with pytest.raises(ConnectionError, match="client"):
        adapter.file_write(target, "file", cut())
    assert list((place / "parts").iterdir()) == []


def test_a_file_that_is_not_read_to_its_end_is_closed(adapter: DevhostAdapter, target: Target) -> None:
    adapter.file_write(target, "file", [bytes(MIB)])
    before = os.listdir("/proc/self/fd")
    for taken in (0, 1):
        content = adapter.file_read(target, "file")
        for _ in range(taken):
            next(content.chunks)
        del content
    assert os.listdir("/proc/self/fd") == before


def test_a_file_that_arrives_is_seen_by_nobody(adapter: DevhostAdapter, target: Target, run_in: Run) -> None:
    def halfway() -> Iterator[bytes]:
        yield b"half"
        assert run_in("ls -A").stdout == b""
        yield b"whole"

    assert adapter.file_write(target, "file", halfway()).size == 9


# --- a host without help ---


def test_commands_end_without_a_pidfd_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    command = Command(["/bin/sh", "-c", "sleep 0.1; echo out; exit 3"], {"PATH": "/usr/bin:/bin"}, "/", None, 10)
    started = start(command, SystemClock())
    assert isinstance(started, Running)
    result = run(started, 100)
    assert (result.exit_code, result.stdout) == (3, b"out\n")


# --- stopping ---


def test_a_stop_ends_every_process_and_forbids_new_ones(
    adapter: DevhostAdapter, root: Path, target: Target, run_in: Run
) -> None:
    run_in("sleep 600 & echo $! > pid; echo kept > kept")
    pid = int(run_in("cat pid").stdout)
    stopped = client(root).stop(target, 5.0)
    assert stopped.state is InstanceState.STOPPED
    assert not alive(pid)
    for call in (
        lambda: run_in("true"),
        lambda: adapter.job_start(target, "job", ExecRequest(command="true")),
        lambda: adapter.file_read(target, "kept"),
        lambda: adapter.file_write(target, "kept", [b""]),
    ):
        with pytest.raises(InvalidState, match="stopped"):
            call()


def test_each_start_is_another_incarnation(adapter: DevhostAdapter, target: Target) -> None:
    first = adapter.get(target).incarnation
    assert adapter.start(target, 5.0).incarnation == first
    adapter.stop(target, 5.0)
    assert adapter.stop(target, 5.0).incarnation == first
    assert adapter.start(target, 5.0).incarnation != first


def test_what_is_being_deleted_is_neither_stopped_nor_started(
    adapter: DevhostAdapter, target: Target, place: Path
) -> None:
    (place / "deleting").touch()
    for call in (adapter.stop, adapter.start):
        with pytest.raises(InvalidState):
            call(target, 5.0)


def test_a_job_that_a_stop_ended_is_lost_or_killed(adapter: DevhostAdapter, target: Target) -> None:
    adapter.job_start(target, "job", ExecRequest(command="exec sleep 600", timeout_seconds=600))
    adapter.stop(target, 5.0)
    adapter.start(target, 5.0)
    job = adapter.job_status(target, "job")  # its supervisor may have been the last to go
    assert (job.state, job.exit_code) in {(JobState.LOST, None), (JobState.EXITED, 128 + signal.SIGKILL)}


# --- snapshots ---


def take(adapter: DevhostAdapter, target: Target, operation: str = "op-1") -> SnapshotInfo:
    return adapter.snapshot(target, SnapshotRequest(SnapshotKind.DISK, operation), 5.0)


def restore(adapter: DevhostAdapter, target: Target, ref: str) -> Target:
    owner = Owner(target.owner.installation, SystemIds(SystemClock()).new("sbx"))
    return Target(owner, adapter.create(replace(a_create_request(owner), from_snapshot=ref), 5.0).ref)


def test_a_snapshot_keeps_files_links_modes_and_times_and_nothing_that_runs(
    adapter: DevhostAdapter, target: Target, run_in: Run
) -> None:
    run_in("mkdir d; echo x > d/script; chmod 754 d/script; touch -d @1000000000 d/script; ln -s d/script link")
    run_in("ln -s /no/such/place broken; mkfifo pipe")
    taken = take(adapter, target)
    assert (taken.state, taken.kind) == (SnapshotState.READY, SnapshotKind.DISK)
    child = restore(adapter, target, taken.ref)
    shown = adapter.exec(child, ExecRequest(command="stat -c '%a %Y' d/script; readlink link broken; ls"), MIB)
    assert shown.stdout.split() == b"754 1000000000 d/script /no/such/place broken d link".split()
    adapter.delete(child)


def test_a_snapshot_is_not_changed_by_what_is_made_of_it(adapter: DevhostAdapter, target: Target, run_in: Run) -> None:
    run_in("echo first > file")
    taken = take(adapter, target)
    run_in("echo second > file")
    assert take(adapter, target) == taken
    child = restore(adapter, target, taken.ref)
    adapter.exec(child, ExecRequest(command="echo third > file"), MIB)
    other = restore(adapter, target, taken.ref)
    assert b"".join(adapter.file_read(other, "file").chunks) == b"first\n"
    for made in (child, other):
        adapter.delete(made)


def test_a_snapshot_of_memory_is_refused(adapter: DevhostAdapter, target: Target) -> None:
    with pytest.raises(UnsupportedOperation) as refused:
        adapter.snapshot(target, SnapshotRequest(SnapshotKind.MEMORY, "op"), 5.0)
    assert refused.value.details["reason"] == "memory_is_not_kept"


def test_a_home_that_cannot_be_copied_fails_this_sandbox_only(
    adapter: DevhostAdapter, target: Target, place: Path, monkeypatch: pytest.MonkeyPatch, run_in: Run
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("no")

    run_in("touch file")
    monkeypatch.setattr("shutil.copy2", refuse)
    with pytest.raises(SandboxFailed) as failed:
        take(adapter, target)
    assert failed.value.settled
    assert list((place.parent / "snapshots").iterdir()) == []


def test_a_snapshot_cut_off_is_no_snapshot_and_is_swept_with_it(
    adapter: DevhostAdapter, target: Target, place: Path
) -> None:
    taken = take(adapter, target)
    left = place.parent / "snapshots" / f".new-{taken.ref}-x"
    (left / "home").mkdir(parents=True)
    assert len(adapter.list(target.owner.installation)) == 1
    adapter.snapshot_delete(target.owner, taken.ref)
    assert list((place.parent / "snapshots").iterdir()) == []


@pytest.mark.parametrize("ref", ["", "..", "../x", "snap-1", "sbx_01KDVDNA00TTTS2Q260NXWP02Z"])
def test_a_ref_that_is_no_snapshot_is_not_found(adapter: DevhostAdapter, target: Target, ref: str) -> None:
    with pytest.raises(NotFound):
        adapter.snapshot_get(target.owner, ref)
    with pytest.raises(NotFound):
        restore(adapter, target, ref)
    adapter.snapshot_delete(target.owner, ref)


def test_folders_nested_by_the_thousand_are_deleted_with_their_sandbox(
    adapter: DevhostAdapter, target: Target, run_in: Run
) -> None:
    """Too deep for a recursive walk, and with paths longer than the kernel takes."""
    nest = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    nested = run_in(args=[sys.executable, "-c", nest], timeout_seconds=60)
    assert nested.exit_code == 0

    adapter.delete(target)

    with pytest.raises(NotFound):
        adapter.get(target)


def test_processes_end_with_a_sandbox_that_removed_its_own_directory(
    adapter: DevhostAdapter, target: Target, run_in: Run, place: Path
) -> None:
    started = run_in(f"setsid sleep 614 >/dev/null 2>&1 & echo $!; rm -rf '{place}'")
    left = int(started.stdout)
    until(lambda: alive(left))

    adapter.delete(target)

    assert not alive(left)


def test_a_foreign_delete_ends_nothing_even_under_the_same_sandbox_id(
    adapter: DevhostAdapter, target: Target, run_in: Run
) -> None:
    """Two installations may share a root; the mark on a process names the sandbox alone."""
    left = int(run_in("sleep 615 >/dev/null 2>&1 & echo $!").stdout)

    adapter.delete(Target(Owner("inst_another", target.owner.sandbox)))

    assert alive(left)


def test_a_socket_is_no_file_to_read(adapter: DevhostAdapter, target: Target, run_in: Run) -> None:
    bind = "import socket; socket.socket(socket.AF_UNIX).bind('s')"
    assert run_in(args=[sys.executable, "-c", bind]).exit_code == 0
    with pytest.raises(InvalidRequest, match="regular file"):
        adapter.file_read(target, "s")


def test_a_root_with_a_nul_is_refused_when_it_is_configured() -> None:
    with pytest.raises(ValueError, match="NUL"):
        DevhostConfig(root=Path("/tmp/a\0b"))
