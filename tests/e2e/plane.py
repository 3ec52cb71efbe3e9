"""The real `python -m differently_local` as a child of the tests: started, talked to over HTTP, killed, started again.

Every process is ended by its own id. Should the test process itself be killed, the kernel (Linux) asks the control
plane to stop, and that ends its emulator in order.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import httpx

T = TypeVar("T")
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
UNTIL_SECONDS_MAX = 60.0
POLL_SECONDS = 0.05

CHILD = """
import ctypes, runpy, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
runpy.run_module("differently_local", run_name="__main__", alter_sys=True)
"""


def until(look: Callable[[], T | None], what: str, seconds: float = UNTIL_SECONDS_MAX) -> T:
    """The first true answer of `look`; an assertion error naming `what` when it does not come in time."""
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < end, f"not after {seconds:.0f} s: {what}"
        time.sleep(POLL_SECONDS)


class Plane:
    """One data directory, and the control plane that runs on it now, if any."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.process: subprocess.Popen[str] | None = None
        self.lines: list[str] = []
        self.seconds_to_start = 0.0
        self._reader: threading.Thread | None = None

    # Its life

    def launch(self, **variables: str) -> subprocess.Popen[str]:
        """Begin a start without waiting for it."""
        environment = {
            "PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.data_dir), "PORT": "0",
            "DIFFERENTLY_DATA_DIR": str(self.data_dir), "PYTHONUNBUFFERED": "1", **variables,
        }  # fmt: skip
        self.lines = []
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", CHILD], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.process = process
        self._reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._reader.start()
        return process

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            self.lines.extend(iter(process.stdout.readline, ""))

    def start(self, **variables: str) -> None:
        began = time.monotonic()
        process = self.launch(**variables)
        until(lambda: "is ready at" in self.output or process.poll() is not None, "ready", START_SECONDS_MAX)
        assert process.poll() is None, self.output
        self.seconds_to_start = time.monotonic() - began

    @property
    def output(self) -> str:
        return "".join(list(self.lines))

    def ended(self) -> int:
        """Wait for its end; the exit code. All it said is then in `output`."""
        assert self.process is not None
        code = self.process.wait(STOP_SECONDS_MAX)
        assert self._reader is not None
        self._reader.join(STOP_SECONDS_MAX)
        return code

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.ended()

    def kill(self) -> None:
        """As a crash would: no handler runs, and the emulator lives on."""
        assert self.process is not None
        self.process.kill()
        self.ended()

    def clean_up(self) -> None:
        """Whatever the test left running ends here."""
        if self.process is not None and self.process.poll() is None:
            self.stop()
        if self.emulator_lives():
            os.kill(self.emulator_pid, signal.SIGTERM)
            until(lambda: not self.emulator_lives(), "the end of the emulator", STOP_SECONDS_MAX)

    # What is there

    def emulator_lives(self) -> bool:
        """By the lock that the emulator holds for life."""
        path = self.data_dir / "emulator.lock"
        if not path.exists():
            return False
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    @property
    def emulator(self) -> Any:
        return json.loads((self.data_dir / "emulator.json").read_text())

    @property
    def emulator_pid(self) -> int:
        return int(self.emulator["pid"])

    @property
    def access(self) -> Any:
        """What `dev.json` holds."""
        return json.loads((self.data_dir / "dev.json").read_text())

    def instances(self) -> list[str]:
        """What devhost would call an instance. One that a kill left half-made is none, and goes with its sandbox."""
        (installation,) = (self.data_dir / "sandboxes").iterdir()
        return sorted(path.name for path in installation.iterdir() if not path.name.startswith("."))

    def raw(self, request: bytes) -> bytes:
        """What the server answers to exactly these bytes, up to the end of the connection."""
        host, _, port = self.access["url"].removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port)), 30) as sock:
            sock.sendall(request)
            found = b""
            while piece := sock.recv(65_536):
                found += piece
        return found

    def set_quota(self, sandboxes: int) -> None:
        with self.client(operator=True) as operator:
            answer = operator.http.put(f"/v1/projects/{operator.project}/quota", json={"maxConcurrent": sandboxes})
            assert answer.status_code == 200, answer.text

    @contextlib.contextmanager
    def client(self, *, operator: bool = False, key: str | None = None, project: str | None = None) -> Iterator[Client]:
        """With the first tenant's key, the operator's, or the one given."""
        access = self.access
        key = key or access["operatorKey" if operator else "tenantKey"]
        with httpx.Client(
            base_url=access["url"], headers={"Authorization": f"Bearer {key}"}, timeout=60.0, trust_env=False,
            limits=httpx.Limits(max_connections=128, max_keepalive_connections=128),
        ) as http:  # fmt: skip
            yield Client(http, project or access["projectId"])


class Client:
    """The calls that the tests make, each asserting that it succeeded."""

    def __init__(self, http: httpx.Client, project: str) -> None:
        self.http = http
        self.project = project

    def made(self, path: str, body: dict[str, Any]) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def create(self, **body: Any) -> Any:
        answer = self.http.post("/v1/sandboxes", json=body)
        assert answer.status_code == 202, answer.text
        return answer.json()

    def get(self, sandbox: str) -> Any:
        answer = self.http.get(f"/v1/sandboxes/{sandbox}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def wait(self, sandbox: str, status: str = "running", seconds: int = 30) -> Any:
        answer = self.http.get(f"/v1/sandboxes/{sandbox}/wait", params={"for": status, "timeoutSeconds": seconds})
        found = answer.json()
        assert found.get("status") == status, found
        return found

    def gone(self, sandbox: str) -> Any:
        """The sandbox once it is terminated."""
        until(lambda: self.get(sandbox)["status"] == "terminated", "its end")
        return self.get(sandbox)

    def running(self, **body: Any) -> str:
        """A new sandbox that runs."""
        sandbox: str = self.create(**body)["id"]
        self.wait(sandbox)
        return sandbox

    def exec(self, sandbox: str, command: str, **more: Any) -> Any:
        answer = self.http.post(f"/v1/sandboxes/{sandbox}/exec", json={"command": command, **more})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def move(self, sandbox: str, kind: str) -> None:
        answer = self.http.post(f"/v1/sandboxes/{sandbox}/{kind}")
        assert answer.status_code == 202, answer.text

    def delete(self, sandbox: str) -> None:
        answer = self.http.delete(f"/v1/sandboxes/{sandbox}")
        assert answer.status_code == 202, answer.text

    def write(self, sandbox: str, path: str, content: bytes) -> None:
        answer = self.http.put(f"/v1/sandboxes/{sandbox}/files/content", params={"path": path}, content=content)
        assert answer.status_code == 200, answer.text

    def upload(self, sandbox: str, path: str, content: bytes) -> None:
        """As `write`, by way of the staging bucket; the bytes are sent without our key."""
        announced = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        begun = self.made(f"/v1/sandboxes/{sandbox}/files/uploads", announced)
        sent = httpx.request(begun["method"], begun["url"], headers=begun["headers"], content=content, trust_env=False)
        assert sent.status_code == 200, sent.text
        query = {"path": path, "upload": begun["id"]}
        answer = self.http.put(f"/v1/sandboxes/{sandbox}/files/content", params=query)
        assert answer.status_code == 200, answer.text

    def read(self, sandbox: str, path: str) -> bytes:
        answer = self.http.get(f"/v1/sandboxes/{sandbox}/files/content", params={"path": path})
        assert answer.status_code == 200, answer.text
        return answer.content

    def list(self, *statuses: str) -> list[dict[str, Any]]:
        """All live sandboxes, or all in these states."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            query = [("limit", "200"), *(("status", status) for status in statuses)]
            answer = self.http.get("/v1/sandboxes", params=[*query, *([("cursor", cursor)] if cursor else [])])
            assert answer.status_code == 200, answer.text
            found += answer.json()["items"]
            cursor = answer.json().get("nextCursor")
            if cursor is None:
                return found

    def quota(self) -> Any:
        answer = self.http.get(f"/v1/projects/{self.project}/quota")
        assert answer.status_code == 200, answer.text
        return answer.json()


def at_once(threads: int, work: Callable[[int], T], items: Iterable[int]) -> list[T]:
    """Results in order, of calls that begin together."""
    with ThreadPoolExecutor(threads) as pool:
        barrier = threading.Barrier(threads)
        arrived = threading.local()

        def call(item: int) -> T:
            if not getattr(arrived, "yet", False):
                arrived.yet = True
                barrier.wait(30)
            return work(item)

        return list(pool.map(call, items))
