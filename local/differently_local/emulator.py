"""The embedded AWS, as a process of its own that outlives a killed control plane and is found again.

Its state reaches the disk only when it ends in order, so nothing here ends it but a normal stop. It holds a lock from
its first instruction to its last: a free lock means that no emulator of this data directory lives, whatever a file
says, and a held one that `emulator.json` names it. Before it is used it must also give its marker back over HTTP: a
port number alone proves nothing.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from differently_core.runtime.ids import IdSource

from .data_stack import KEY_ID, SECRET
from .failure import StartFailure
from .private_files import Lock, make_directory, read_json
from .signals import StopRequest

LOOPBACK = "127.0.0.1"
READY_SECONDS_MAX = 60.0
"""Loading the state of an earlier run takes about half a millisecond a stored row."""
SAVE_SECONDS_MAX = 60.0
POLL_SECONDS = 0.05
TELL_SECONDS = 2.0
PORTS_MAX = 3
"""Free ports that are tried: between choosing one and binding it somebody else may take it."""
_CHILD = Path(__file__).with_name("emulator_child.py")


@dataclass(frozen=True)
class Found:
    pid: int
    port: int
    marker: str

    @property
    def endpoint(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"


class Emulator:
    def __init__(
        self, data_dir: Path, python: Path, ids: IdSource, stop: StopRequest, say: Callable[[str], None]
    ) -> None:
        self._data_dir = data_dir
        self._python = python
        self._ids = ids
        self._stop = stop
        self._say = say
        self._child: subprocess.Popen[bytes] | None = None
        self._found: Found | None = None

    def obtain(self) -> str:
        """Adopt the living emulator of this data directory, or start one; returns its endpoint."""
        lock = Lock(self._data_dir / "emulator.lock")
        try:
            if lock.take():
                self._found = self._start(lock)
            else:
                self._found = self._adopt()
        finally:
            lock.close()
        return self._found.endpoint

    def _start(self, lock: Lock) -> Found:
        if not self._python.exists():
            raise StartFailure(
                f"The emulator's environment is missing ({self._python}). Run `make run`, which makes it, or "
                "`scripts/bootstrap`."
            )
        for _ in range(PORTS_MAX):
            marker = self._ids.secret()
            port = _free_port()
            self._say(f"starting the embedded AWS on {LOOPBACK}:{port}")
            self._spawn(lock, marker, port)
            found = self._await_answer(marker)
            if found is not None:
                return found
        raise StartFailure(f"The embedded AWS does not start; {self._log_path} says why.")

    def _spawn(self, lock: Lock, marker: str, port: int) -> None:
        scratch = self._data_dir / "emulator"
        make_directory(scratch)
        state = self._data_dir / "state"
        make_directory(state)
        check_state(state)
        # Nothing of the caller's environment: variables of AWS or of the emulator itself would change what it does.
        environment = {
            "PATH": os.defpath, "HOME": str(scratch), "TMPDIR": str(scratch), "LANG": "C.UTF-8",
            "BIND_HOST": LOOPBACK, "GATEWAY_PORT": str(port), "IOT_MTLS_ENABLED": "0", "SFTP_ENABLED": "0",
            # Signed addresses are checked against these, whoever else is let in without a look.
            "AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET,
            "PERSIST_STATE": "1", "STATE_DIR": str(state), "LOG_LEVEL": "WARNING",
            # Its health answer repeats the edition, which is how it proves itself.
            "MINISTACK_EDITION": marker,
        }  # fmt: skip
        with self._log_path.open("wb") as log:
            self._child = subprocess.Popen(
                [self._python, "-I", _CHILD, self._announcement, str(lock.fileno())],
                env=environment, cwd=scratch, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                # A session of its own: the terminal's Ctrl-C is for us, who stop it in order.
                pass_fds=(lock.fileno(),), start_new_session=True,
            )  # fmt: skip

    @property
    def _announcement(self) -> Path:
        return self._data_dir / "emulator.json"

    @property
    def _log_path(self) -> Path:
        return self._data_dir / "emulator.log"

    def _announced(self, marker: str | None = None) -> Found | None:
        """Who the file names; with a marker, only the one started with it."""
        try:
            found = Found(**read_json(self._announcement))
        except TypeError:
            return None
        return found if marker is None or found.marker == marker else None

    def _await_answer(self, marker: str | None) -> Found | None:
        """The emulator once it answers with its marker; None when it ended instead."""
        started = told = time.monotonic()
        while time.monotonic() - started < READY_SECONDS_MAX:
            found = self._announced(marker)
            if found is not None and proves(found):
                return found
            if not self.alive():
                return None
            if time.monotonic() - told > TELL_SECONDS:
                told = time.monotonic()
                self._say("waiting for the embedded AWS to load its state and answer")
            self._stop.pause(POLL_SECONDS)
        who = f" (pid {found.pid})" if found else ""
        raise StartFailure(
            f"The embedded AWS{who} does not answer after {READY_SECONDS_MAX:.0f} s; {self._log_path} may say why."
        )

    def _adopt(self) -> Found:
        """The one that a killed control plane left behind; if it is ending just now, the next one."""
        found = self._await_answer(None)
        if found is not None:
            self._say(f"found the embedded AWS of an earlier run (pid {found.pid}, port {found.port})")
            return found
        lock = Lock(self._data_dir / "emulator.lock")
        try:
            if not lock.take():
                raise StartFailure("Another start is under way in this directory; try again in a moment.")
            return self._start(lock)
        finally:
            lock.close()

    def alive(self) -> bool:
        if self._child is not None:
            return self._child.poll() is None
        lock = Lock(self._data_dir / "emulator.lock")
        try:
            return not lock.take()
        finally:
            lock.close()

    def stop(self) -> None:
        """End it in order and wait until its state is on disk; does nothing when there is none."""
        pid = self._pid()
        if pid is None or not self.alive():
            return
        # It is alive as our unreaped child or under the lock, so the number is still its own.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        if self._ends_within(SAVE_SECONDS_MAX):
            return
        self._say(f"the embedded AWS did not end within {SAVE_SECONDS_MAX:.0f} s; what it had not saved is lost")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self._ends_within(SAVE_SECONDS_MAX)

    def _pid(self) -> int | None:
        if self._child is not None:
            return self._child.pid
        found = self._found or self._announced()
        return found.pid if found is not None and (found is self._found or proves(found)) else None

    def _ends_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not self.alive():
                return True
            time.sleep(POLL_SECONDS / 2)
        return False


def check_state(folder: Path) -> None:
    """Raise `StartFailure` for saved state that cannot be read: the emulator would begin empty and say nothing."""
    for path in sorted(folder.glob("*.json")):
        try:
            json.loads(path.read_bytes())
        except (OSError, ValueError):
            raise StartFailure(
                f"{path} is damaged, so the state of the last run cannot be read. Put a copy of it back, or move "
                f"{folder} away to begin with an empty installation."
            ) from None


def proves(found: Found) -> bool:
    """Whether what listens on the port gives the marker back."""
    return _health(found.port).get("edition") == found.marker


def _health(port: int) -> dict[str, Any]:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=2.0)
    try:
        connection.request("GET", "/_ministack/health", headers={"Connection": "close"})
        answer = json.loads(connection.getresponse().read(1_048_576))
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        connection.close()
    return answer if isinstance(answer, dict) else {}


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port
