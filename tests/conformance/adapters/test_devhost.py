"""devhost under the conformance suite: its backend is a directory and the processes of this host."""

from __future__ import annotations

import contextlib
import hashlib
import json
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from differently_adapters.providers.devhost import DevhostAdapter, DevhostConfig
from differently_adapters.testing import AdapterConformance, CannotHappen, Mishap, a_create_request
from differently_core.contract import Adapter, AdapterContext, Operation, Owner, Target
from differently_core.runtime.clock import SystemClock


class DevhostBackend:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._aside = root.with_name("aside")

    def count(self) -> int:
        return len(list(self.root.glob("*/sbx_*")))

    def snapshots(self) -> int:
        return len(list(self.root.glob("*/snapshots/snap-*")))

    def state_digest(self) -> str:
        told = hashlib.sha256()
        for path in sorted(self.root.rglob("*")):
            found = path.lstat()
            told.update(f"{path} {found.st_mode} {found.st_mtime_ns}".encode())
            if stat.S_ISREG(found.st_mode):
                told.update(path.read_bytes())
        return told.hexdigest()

    def requests(self, operation: Operation) -> int:
        raise CannotHappen("nothing lies between the adapter and the directory")

    def lose_answer(self, operation: Operation) -> None:
        """Nothing lies between: the client that dies before it reads is the only way to lose an answer."""

    def delay_create(self) -> None:
        raise AssertionError("devhost declares that nothing can turn up late")

    def settle(self) -> None:
        raise AssertionError("devhost declares that nothing can turn up late")

    @contextlib.contextmanager
    def losing_completions(self) -> Iterator[None]:
        """With SIGCHLD ignored the kernel reaps children itself, and their exit codes are gone."""
        before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        try:
            yield
        finally:
            signal.signal(signal.SIGCHLD, before)

    def plant_foreign(self, ours: Owner, theirs: Owner) -> Target:
        client(self.root).create(a_create_request(ours), 5.0)
        meta = self.root / ours.installation / ours.sandbox / "meta.json"
        said = json.loads(meta.read_text())
        meta.write_text(json.dumps({**said, "installation": theirs.installation, "sandbox": theirs.sandbox}))
        return Target(ours, ours.sandbox)

    def break_list(self) -> None:
        next(iter(self.root.glob("*/sbx_*/meta.json"))).write_text("{cut off")

    def arrange(self, mishap: Mishap) -> None:
        if mishap is not Mishap.RESTORE_FAILS:
            raise CannotHappen("a directory is made and read in one step")
        for home in self.root.glob("*/snapshots/*/home"):
            home.rmdir()

    def go_down(self) -> None:
        if not self._aside.exists():
            self.root.rename(self._aside)
            self.root.touch()

    def come_up(self) -> None:
        if self._aside.exists():
            self.root.unlink()
            self._aside.rename(self.root)


def client(root: Path) -> DevhostAdapter:
    return DevhostAdapter(AdapterContext("dev", "inst_any", DevhostConfig(root=root), SystemClock()))


class TestDevhost(AdapterConformance):
    kind = "devhost"

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[DevhostBackend]:
        backend = DevhostBackend(tmp_path / "root")
        backend.root.mkdir()
        yield backend
        backend.come_up()

    @pytest.fixture
    def adapter(self, backend: DevhostBackend) -> Adapter:
        return client(backend.root)

    @pytest.fixture
    def restarted(self, backend: DevhostBackend) -> Adapter:
        return client(backend.root)
