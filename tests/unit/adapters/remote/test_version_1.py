"""A plugin that somebody wrote from the documentation, with version 1's routes only: the one that stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from differently_adapters.remote import RemoteAdapter, RemoteConfig
from differently_adapters.testing import a_create_request
from differently_core.contract import (
    AdapterContext,
    Exit,
    InstanceState,
    Operation,
    Output,
    Owner,
    Target,
    Transition,
    supports,
)
from differently_core.errors import InvalidRequest, NotFound, ProviderUnavailable, UnsupportedOperation
from differently_core.model.exec import ExecRequest, JobState
from differently_core.runtime.clock import SystemClock

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "remote-plugin.md"
TOKEN = "lab-token"
OWNER = Owner("inst_a", "sbx_1")
OTHERS = Owner("inst_b", "sbx_2")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("lab")
    found = re.search(r"<!-- plugin -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found, "the page lost its plugin"
    (folder / "plugin.py").write_text(found[1])
    (folder / "sandboxes").mkdir()
    process = subprocess.Popen(
        [sys.executable, "plugin.py", "sandboxes", "0"], cwd=folder, stdout=subprocess.PIPE, text=True,
        env={"PATH": os.environ["PATH"], "LAB_PLUGIN_TOKEN": TOKEN},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def client(endpoint: str, folder: Path, token: str = TOKEN) -> RemoteAdapter:
    config = RemoteConfig(
        endpoint=endpoint, allow_http=True, allow_loopback=True, jobs_directory=str(folder / "jobs"),
        settles_seconds=7.0,
    )  # fmt: skip
    return RemoteAdapter(AdapterContext("lab", "inst_a", config, SystemClock(), {"token": token}))


@pytest.fixture
def adapter(endpoint: str, tmp_path: Path) -> Iterator[RemoteAdapter]:
    with closing(client(endpoint, tmp_path)) as adapter:
        yield adapter


@pytest.fixture
def sandbox(adapter: RemoteAdapter) -> Iterator[Target]:
    made = adapter.create(a_create_request(OWNER, {"FROM_CREATE": "yes"}), 10.0)
    yield Target(OWNER, made.ref)
    adapter.delete(Target(OWNER))


def test_it_tells_what_it_is(adapter: RemoteAdapter) -> None:
    adapter.health()
    assert not adapter.capacity().bounded
    assert adapter.capabilities().features == {"exec", "exec.stream", "files", "isolation.none"}
    info = adapter.info()
    assert (info.kind, info.version, info.isolation, info.trust) == ("remote", "0.1", "none", None)
    assert (info.idempotent_create, info.settles_seconds) == (True, 7.0)
    adapter.verify_credential()
    assert adapter.discover().templates == {}


def test_a_wrong_token_is_told_as_such(endpoint: str, tmp_path: Path) -> None:
    with closing(client(endpoint, tmp_path, "wrong-token-canary")) as adapter:
        for call in (adapter.health, adapter.verify_credential, lambda: adapter.list("inst_a")):
            with pytest.raises(ProviderUnavailable, match="credentials were rejected") as refused:
                call()
            assert refused.value.settled


def test_create_get_list_delete(adapter: RemoteAdapter) -> None:
    first = adapter.create(a_create_request(OWNER), 10.0)
    assert adapter.create(a_create_request(OWNER), 10.0) == first
    assert (first.owner, first.state) == (OWNER, InstanceState.RUNNING)
    assert adapter.get(Target(OWNER, first.ref)) == adapter.get(Target(OWNER)) == first
    theirs = adapter.create(a_create_request(OTHERS), 10.0)
    assert adapter.list(OWNER.installation) == [first]
    for stranger in (Target(OWNER, theirs.ref), Target(Owner("inst_a", "sbx_3"), first.ref)):
        for call in (adapter.get, adapter.delete, lambda target: adapter.exec(target, ExecRequest(command="true"), 9)):
            with pytest.raises(NotFound):
                call(stranger)
    adapter.delete(Target(OWNER))
    adapter.delete(Target(OWNER))
    adapter.delete(Target(OWNER, first.ref))
    assert adapter.list(OWNER.installation) == []
    assert adapter.list(OTHERS.installation) == [theirs]
    adapter.delete(Target(OTHERS, theirs.ref))


def test_commands(adapter: RemoteAdapter, sandbox: Target) -> None:
    request = ExecRequest(command='echo "$FROM_CREATE $X"; cat; echo err >&2; exit 3', env={"X": "é"}, stdin="in")
    result = adapter.exec(sandbox, request, 100)
    assert (result.exit_code, result.stdout, result.stderr) == (3, "yes é\nin".encode(), b"err\n")
    assert not result.timed_out
    assert adapter.exec(Target(OWNER), ExecRequest(args=["printf", "%s", "a b"]), 100).stdout == b"a b"


def test_output_is_bounded_here_when_the_plugin_does_not(adapter: RemoteAdapter, sandbox: Target) -> None:
    result = adapter.exec(sandbox, ExecRequest(command="printf HEAD; head -c 100000 /dev/zero; printf TAIL"), 10)
    assert (result.stdout, result.stdout_dropped_bytes) == (b"HEAD\0\0TAIL"[:5] + b"\0TAIL", 99_998)


def test_a_stream(adapter: RemoteAdapter, sandbox: Target) -> None:
    events = list(adapter.exec_stream(sandbox, ExecRequest(command="echo one; echo two; exit 5"), 5.0))
    assert b"".join(event.data for event in events if isinstance(event, Output)) == b"one\ntwo\n"
    last = events[-1]
    assert isinstance(last, Exit)
    assert (last.exit_code, last.timed_out) == (5, False)


def test_files(adapter: RemoteAdapter, sandbox: Target) -> None:
    noise = bytes(range(256)) * 8_000
    written = adapter.file_write(sandbox, "a b/file", [noise[:10], noise[10:]])
    assert (written.size, written.is_dir, written.name) == (len(noise), False, "file")
    content = adapter.file_read(sandbox, "a b/file")
    assert (content.size, b"".join(content.chunks)) == (len(noise), noise)
    assert [entry.name for entry in adapter.file_list(sandbox, "a b")] == ["file"]
    assert adapter.file_stat(sandbox, "a b").is_dir
    for missing in ("a b/none", "none"):
        with pytest.raises(NotFound):
            adapter.file_stat(sandbox, missing)
    adapter.file_delete(sandbox, "a b")
    adapter.file_delete(sandbox, "a b")
    assert adapter.file_list(sandbox, ".") == []
    for path in ("../x", ".", "/"):
        with pytest.raises(InvalidRequest):
            adapter.file_delete(sandbox, path)


def test_jobs_are_made_from_commands(adapter: RemoteAdapter, sandbox: Target) -> None:
    request = ExecRequest(command="echo out; exit 4")
    adapter.job_start(sandbox, "build", request)
    for _ in range(500):
        job = adapter.job_status(sandbox, "build")
        if job.state is not JobState.RUNNING:
            break
        threading.Event().wait(0.01)
    assert (job.state, job.exit_code) == (JobState.EXITED, 4)
    assert adapter.job_output(sandbox, "build", "stdout", 0, 100).data == b"out\n"
    assert adapter.job_stop(sandbox, "build") == job
    assert adapter.job_interrupt(sandbox, "build") == job


def test_what_it_does_not_have_is_refused_before_anything_is_asked(adapter: RemoteAdapter, sandbox: Target) -> None:
    absent = {operation for operation in Operation if not supports(adapter, operation)}
    assert absent == {
        Operation.RENEW, Operation.STOP, Operation.START, Operation.PAUSE, Operation.RESUME,
        Operation.CALL_OFF, Operation.SNAPSHOT, Operation.SNAPSHOT_GET, Operation.SNAPSHOT_DELETE,
        Operation.PORT_EXPOSE, Operation.PORT_REVOKE, Operation.EGRESS_SET, Operation.OBSERVE_MANY,
    }  # fmt: skip
    with pytest.raises(UnsupportedOperation) as refused:
        adapter.pause(sandbox, Transition("op", ""), 5.0)
    assert refused.value.details["reason"] == "not_offered_by_plugin"
