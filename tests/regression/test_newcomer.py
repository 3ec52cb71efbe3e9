"""Faults that a newcomer met in the first hour, each by what it looked like from outside."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from differently_adapters.jobs import WATCH_SECONDS
from differently_adapters.pools import PoolAdapters
from differently_adapters.providers.devhost import DevhostAdapter, DevhostConfig
from differently_adapters.testing.fixtures import a_create_request
from differently_core.contract import AdapterContext, Owner, Target
from differently_core.errors import InvalidRequest, PayloadTooLarge, ProviderUnavailable
from differently_core.model.exec import ExecRequest
from differently_core.model.sandbox import Sandbox
from differently_core.operations import dispatch, pools
from differently_core.operations.catalog import Catalog
from differently_core.operations.core import Core
from differently_core.runtime.clock import SystemClock
from differently_core.runtime.ids import SystemIds
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Put, Update
from differently_local import gateway, installation
from differently_local.control_plane import end_commands
from differently_local.emulator import check_state
from differently_local.failure import StartFailure
from tests.support.api import World
from tests.support.world import Bag

HAS_PROC = pytest.mark.skipif(not Path("/proc/self").exists(), reason="processes are told apart by /proc")


@pytest.fixture
def world() -> World:
    made = World()
    made.pool()
    return made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    return made


def devhost(root: Path) -> DevhostAdapter:
    return DevhostAdapter(AdapterContext("dev", "inst_any", DevhostConfig(root=root), SystemClock()))


@pytest.fixture
def target(root: Path) -> Iterator[Target]:
    ids = SystemIds(SystemClock())
    owner = Owner(ids.new("inst"), ids.new("sbx"))
    devhost(root).create(a_create_request(owner), 5.0)
    yield Target(owner, owner.sandbox)
    if root.exists():
        devhost(root).delete(Target(owner))


def until(condition: Callable[[], bool], seconds: int = 60) -> None:
    clock = SystemClock()
    for _ in range(seconds * 50):
        if condition():
            return
        clock.sleep(0.02)
    pytest.fail("waited too long for a condition")


# make run


@pytest.mark.parametrize("content", [b"", b'{"tables": {"a"', b"\xff\xfe", b"{} trailing"])
def test_a_damaged_state_is_no_empty_installation(tmp_path: Path, content: bytes) -> None:
    """The embedded AWS began empty and said nothing; keys, sandboxes and quotas were gone."""
    (tmp_path / "kms.json").write_text("{}")
    check_state(tmp_path)
    (tmp_path / "dynamodb.json").write_bytes(content)
    with pytest.raises(StartFailure, match=r"dynamodb\.json is damaged.*[Pp]ut a copy of it back"):
        check_state(tmp_path)


@pytest.mark.parametrize("size", [gateway.PAYLOAD_BYTES_MAX // 4 * 3 + 1, 5 * 1024 * 1024])
def test_a_body_that_is_too_large_is_told_the_one_limit(size: int) -> None:
    """A PUT of 5 MiB was told a limit of 6 MiB, which it kept."""
    with pytest.raises(PayloadTooLarge) as refusal:
        gateway.proxy_event(_request(b"x" * size), None)
    assert refusal.value.details["limit"] == 4 * 1024 * 1024


def _request(body: bytes) -> gateway.Request:
    at = SystemClock().now()
    return gateway.Request("PUT", "/v1/sandboxes/x/files/content?path=a", [], body, "127.0.0.1", "request", at)


@HAS_PROC
def test_a_stop_ends_what_runs_in_this_machines_sandboxes(tmp_path: Path) -> None:
    """Jobs and commands outlived the control plane that was stopped."""
    core = _local_core(tmp_path)
    adapter = core.backends.adapter(core.catalog.pool("devhost"))
    ids = SystemIds(SystemClock())
    owner = Owner(core.catalog.installation().id, ids.new("sbx"))
    adapter.create(a_create_request(owner), 5.0)
    target = Target(owner)
    adapter.job_start(target, "long", ExecRequest(command="echo $$ > pid; exec sleep 600", timeout_seconds=600))
    pid = tmp_path / "sandboxes" / owner.installation / owner.sandbox / "home" / "pid"
    until(lambda: pid.exists() and pid.read_text() != "")
    end_commands(core)
    until(lambda: not _lives(int(pid.read_text())))
    assert [entry.owner for entry in adapter.list(owner.installation)] == [owner]
    adapter.delete(target)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _local_core(data_dir: Path) -> Core:
    clock, store = SystemClock(), MemoryStore()
    catalog = Catalog(store, clock)
    backends = PoolAdapters(clock, lambda: catalog.installation().id, dev=True)
    core = Core(store, clock, SystemIds(clock), Bag(), catalog, backends)
    installation.prepare(core, installation.pepper(data_dir, core.ids), data_dir, "http://127.0.0.1:1", _quiet)
    return core


def _quiet(text: str) -> None:
    pass


def test_a_root_that_is_missing_is_an_outage_and_not_an_empty_list(root: Path, target: Target) -> None:
    """It was made anew, the list was empty, and everything in it was taken for lost."""
    adapter = devhost(root)
    aside = root.with_name("aside")
    root.rename(aside)
    for call in (adapter.health, lambda: adapter.list(target.owner.installation)):
        with pytest.raises(ProviderUnavailable, match="missing"):
            call()
    with pytest.raises(ProviderUnavailable):
        adapter.create(a_create_request(Owner(target.owner.installation, "sbx_01JBM2ZQ5KD3V9T7C8R1X4W6YB")), 5.0)
    assert not root.exists()
    aside.rename(root)
    assert len(adapter.list(target.owner.installation)) == 1


def test_a_start_does_not_make_a_root_that_was_there(tmp_path: Path) -> None:
    core = _local_core(tmp_path)
    shutil.rmtree(tmp_path / "sandboxes")
    installation.prepare(core, installation.pepper(tmp_path, core.ids), tmp_path, "http://127.0.0.1:1", _quiet)
    assert not (tmp_path / "sandboxes").exists()
    assert not pools.probe(core, core.catalog.pool("devhost")).healthy


# Sandboxes


def test_a_sandbox_whose_instance_vanished_is_named_and_looked_for(world: World) -> None:
    """Commands answered 404 for as long as the reconciler had not noticed, as if the sandbox had never been."""
    acme = world.tenant()
    sandbox = world.running(acme)
    base = f"/v1/sandboxes/{sandbox}"
    world.call("PUT", f"{base}/files/content?path=a", b"x", token=acme.token)
    assert world.call("GET", f"{base}/files/content?path=missing", token=acme.token).status == 404
    assert world.call("GET", f"{base}/jobs/missing", token=acme.token).status == 404
    (instance,) = world.backend("main").instances()
    world.backend("main").vanish(instance.ref)
    for method, tail, body in (
        ("POST", "/exec", {"command": "true"}), ("POST", "/exec?stream=true", {"command": "true"}),
        ("GET", "/files/content?path=a", None), ("POST", "/jobs", {"command": "true"}), ("GET", "/jobs/one", None),
    ):  # fmt: skip
        world.mail.messages.clear()
        reply = world.call(method, base + tail, body, token=acme.token)
        assert (reply.status, reply.code) == (409, "invalid_state"), tail
        assert sandbox in reply.json()["error"]["message"]
        assert ("reconcile", "main", 0) in world.mail.messages
    world.settle()
    world.clock.advance(120)
    world.core.nudges.reconcile("main")
    world.settle()
    found = world.call("GET", base, token=acme.token).json()
    assert (found["status"], found["statusReason"]["code"]) == ("failed", "instance_lost")


def test_many_writers_of_one_sandbox_all_come_through(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twenty parallel PATCHes some were answered 503."""
    acme = world.tenant()
    sandbox = world.running(acme)
    transact, others = world.store.transact, iter(range(20))

    def contended(actions: Any) -> Any:
        writes = any(isinstance(action, Put) and action.name == "sandbox" for action in actions)
        if writes and next(others, None) is not None:
            transact([Update(Sandbox, Sandbox.key_of(sandbox), "other", add={"version": 1})])  # type: ignore[arg-type]
        return transact(actions)

    monkeypatch.setattr(world.store, "transact", contended)
    reply = world.call("PATCH", f"/v1/sandboxes/{sandbox}", {"labels": {"a": "b"}}, token=acme.token)
    assert (reply.status, reply.json()["labels"]) == (200, {"a": "b"})
    assert next(others, None) is None


def test_a_pool_that_began_to_drain_unseen_is_named_as_waited_for(world: World) -> None:
    """The pool was chosen by a view some seconds old, refused in the transaction, and then named nowhere."""
    acme = world.tenant()
    world.running(acme)
    stale = dict(world.core.catalog._cache)
    world.call("POST", "/v1/admin/pools/main/drain", token=world.operator)
    world.core.catalog._cache.update(stale)
    made = world.call("POST", "/v1/sandboxes", {}, token=acme.token).json()
    assert (made["status"], made["waitingFor"]) == ("queued", [{"pool": "main", "reason": "draining"}])
    dispatch.dispatch(world.core)


@pytest.mark.parametrize("value", ["a\u202eb", "\u2066x", "x\u200f", "a\u061cb", "line\u2028break", "\x85", "\ufeffx"])
def test_a_label_reads_as_it_is_written(world: World, value: str) -> None:
    """Values could hold characters that turn the text around them."""
    acme = world.tenant()
    reply = world.call("POST", "/v1/sandboxes", {"labels": {"run": value}}, token=acme.token)
    assert (reply.status, reply.json()["error"]["details"]["field"]) == (400, "labels.run")
    told = world.call("POST", "/v1/sandboxes", {"labels": {"run": "שלום, 日本, é 👍🏽"}}, token=acme.token)
    assert told.status == 202


# Files and jobs of this machine


def test_a_name_that_is_not_utf8_can_be_read_and_deleted_as_it_is_shown(root: Path, target: Target) -> None:
    """It was shown with U+FFFD; deleting what was shown said deleted, and the file stayed."""
    adapter = devhost(root)
    home = root / target.owner.installation / target.owner.sandbox / "home"
    folder = os.fsencode(home) + b"/d\xff"
    os.mkdir(folder)
    Path(os.fsdecode(folder + b"/caf\xe9")).write_bytes(b"black")
    (shown,) = adapter.file_list(target, adapter.file_list(target, ".")[0].path)
    assert shown.path == "d\ufffd/caf\ufffd"
    assert b"".join(adapter.file_read(target, shown.path).chunks) == b"black"
    adapter.file_delete(target, shown.path)
    assert os.listdir(folder) == []


def test_names_that_are_shown_alike_are_not_guessed(root: Path, target: Target) -> None:
    home = os.fsencode(root / target.owner.installation / target.owner.sandbox / "home")
    for name in (b"/a\xff", b"/a\xfe"):
        Path(os.fsdecode(home + name)).write_bytes(name)
    with pytest.raises(InvalidRequest, match="Several names"):
        devhost(root).file_delete(target, "a\ufffd")
    assert len(os.listdir(home)) == 2
    Path(os.fsdecode(home + "/a\ufffd".encode())).write_bytes(b"itself")
    devhost(root).file_delete(target, "a\ufffd")
    assert len(os.listdir(home)) == 2


@HAS_PROC
def test_the_watch_of_a_killed_supervisor_goes_with_its_command(root: Path, target: Target) -> None:
    """It slept on until the job's time was up, hours later."""
    adapter = devhost(root)
    adapter.job_start(target, "j", ExecRequest(command="sleep 600", timeout_seconds=7200))
    jobs = root / target.owner.installation / target.owner.sandbox / "jobs" / "j"
    until(lambda: (jobs / "child").exists() and (jobs / "supervisor").exists())
    pids = [int((jobs / name).read_text().split()[0]) for name in ("supervisor", "child")]
    (watch,) = [pid for pid in _running(str(jobs / "supervise")) if pid not in pids]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not _lives(watch), WATCH_SECONDS * 3)


def _running(script: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if script.encode() in words and b"watch" in words:
            found.append(int(entry.name))
    return found


def test_the_suite_hears_an_interrupt_also_in_the_background() -> None:
    """A shell starts what it puts in the background with SIGINT ignored, and tests of interrupts failed there."""
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
