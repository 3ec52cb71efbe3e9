"""execd's part: commands in a directory of this host that stands for the sandbox's disk.

There is no root of a sandbox's own, so a command sees this host. Paths of the file routes are taken as lying under the
sandbox's directory, unless they already do.
"""

from __future__ import annotations

import email.parser
import email.policy
import json
import os
import re
import select
import shutil
import signal
import stat
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from differently_core.runtime.clock import SystemClock
from tests.conformance.adapters.stand_in.http import Reply, Request, refused, told

MARKER = "FAKE_OPENSANDBOX_BOX"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
POLL_SECONDS = 0.02
LOOK_BYTES_MAX = 256 * 1024
UNREAD_BYTES_MAX = 64 * 1024 * 1024
"""Of a command's output on disk; one that writes faster stands still until it was read."""
UNHEARD_EVENTS_MAX = 20_000
SHELL = shutil.which("bash") or "/bin/sh"


@dataclass
class Box:
    """A sandbox's disk and processes. `awake` is unset while it is frozen: then nothing answers."""

    id: str
    root: Path
    env: dict[str, str]
    awake: threading.Event = field(default_factory=threading.Event)
    commands: dict[str, Command] = field(default_factory=dict)
    sessions: set[str] = field(default_factory=set)
    ran: bool = False
    """Something was started in it."""

    def __post_init__(self) -> None:
        self.awake.set()
        for folder in (self.home, self.tmp):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def tmp(self) -> Path:
        return self.root / "tmp"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": PATH, "HOME": str(self.home), "TMPDIR": str(self.tmp), "LANG": "C.UTF-8", MARKER: self.id,
            **self.env,
        }  # fmt: skip

    def real(self, path: str) -> Path:
        """Newer execd reads `$NAME` and a leading `~` as a shell does; an older one is not known to do otherwise."""
        expanded = re.sub(r"\$\{?(\w+)\}?", lambda match: self.environment[match[1]], path)
        if not expanded.startswith("/"):
            return self.home / expanded
        inside = Path(os.path.normpath(expanded))
        return inside if inside.is_relative_to(self.root) else self.root / str(inside).lstrip("/")

    def signal_all(self, number: int) -> None:
        """Every process that came of this sandbox, also those that left their process group."""
        if not self.ran:
            return
        mark = f"{MARKER}={self.id}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), number)


class Command:
    """Runs to its end whether or not anybody listens; its events are kept for who does."""

    def __init__(self, box: Box, body: dict[str, Any], ping_seconds: float) -> None:
        self.id = uuid4().hex
        self.content: str = body["command"]
        self.background = bool(body.get("background"))
        self._clock = SystemClock()
        self._timeout = (body.get("timeout") or 0) / 1000
        self._ping_seconds = ping_seconds
        self.started_at = self._clock.now()
        self.finished_at: datetime | None = None
        self.exit_code: int | None = None
        self.error = ""
        self._events: deque[dict[str, Any]] = deque()
        self._left = False
        self._held = False
        self._changed = threading.Condition()
        self.files = {name: box.root / f".execd-{self.id}.{name}" for name in ("stdout", "stderr")}
        handles = {name: path.open("wb") for name, path in self.files.items()}
        box.ran = True
        self._process = subprocess.Popen(
            [SHELL, "-c", self.content],
            cwd=box.real(body["cwd"]) if body.get("cwd") else box.home,
            env={**box.environment, **(body.get("envs") or {})},
            stdin=subprocess.DEVNULL, stdout=handles["stdout"], start_new_session=True,
            stderr=handles["stdout"] if self.background else handles["stderr"],
        )  # fmt: skip
        for handle in handles.values():
            handle.close()
        self._tell(type="init", text=self.id)
        self._tell(type="ping", text="pong")
        if self.background:
            self._tell(type="execution_complete")
        threading.Thread(target=self._watch, name="fake-execd-command", daemon=True).start()

    def events(self) -> Iterator[dict[str, Any]]:
        """For the one who started it; what is told after it has gone is dropped."""
        try:
            while True:
                with self._changed:
                    while not self._events:
                        self._changed.wait()
                    event = self._events.popleft()
                    self._changed.notify_all()
                yield event
                if event["type"] in {"execution_complete", "error"}:
                    return
        finally:
            with self._changed:
                self._left = True
                self._events.clear()
                self._changed.notify_all()

    def interrupt(self) -> bool:
        if self.finished_at is not None:
            return False
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return True

    def output(self) -> bytes:
        return self.files["stdout"].read_bytes()

    def _tell(self, **event: Any) -> None:
        with self._changed:
            if self._left:
                return
            self._events.append({**event, "timestamp": int(self._clock.now().timestamp() * 1000)})
            self._changed.notify_all()

    def _watch(self) -> None:
        tails = [] if self.background else [_Tail(name, path) for name, path in self.files.items()]
        began = pinged = self._clock.monotonic()
        handle = os.pidfd_open(self._process.pid)
        try:
            ended = False
            while not ended:
                ended = bool(select.select([handle], [], [], POLL_SECONDS)[0])
                for tail in tails:
                    if self._has_room():
                        tail.look(self._tell)
                self._hold(any(tail.unread() > UNREAD_BYTES_MAX for tail in tails))
                now = self._clock.monotonic()
                if self._timeout and now - began >= self._timeout:
                    self.interrupt()
                if now - pinged >= self._ping_seconds and not self.background:
                    pinged = now
                    self._tell(type="ping", text="pong")
        finally:
            os.close(handle)
        for tail in tails:
            while tail.look(self._tell):
                with self._changed:
                    self._changed.wait_for(self._has_room)
            tail.end(self._tell)
        self._finish(self._process.wait(), self._clock.monotonic() - began)

    def _has_room(self) -> bool:
        return self._left or len(self._events) < UNHEARD_EVENTS_MAX

    def _hold(self, stands: bool) -> None:
        """Let it stand still while too much is unread, as a full pipe would."""
        if stands is not self._held:
            self._held = stands
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGSTOP if stands else signal.SIGCONT)

    def _finish(self, returncode: int, seconds: float) -> None:
        self.finished_at = self._clock.now()
        self.exit_code = returncode if returncode >= 0 else -1
        if returncode < 0:
            self.error = f"signal: {signal.strsignal(-returncode)}".lower()
        elif returncode:
            self.error = f"exit status {returncode}"
        if self.background:
            return
        for path in self.files.values():
            path.unlink(missing_ok=True)
        if self.error:
            error = {"ename": "CommandExecError", "evalue": str(self.exit_code), "traceback": [self.error]}
            self._tell(type="error", error=error)
        else:
            self._tell(type="execution_complete", execution_time=int(seconds * 1000))

    def status(self) -> dict[str, Any]:
        status = {
            "id": self.id, "content": self.content, "running": self.finished_at is None,
            "exit_code": self.exit_code, "error": self.error, "started_at": stamp(self.started_at),
        }  # fmt: skip
        return status | ({"finished_at": stamp(self.finished_at)} if self.finished_at else {})


class _Tail:
    """Lines of a growing file. What ended them is lost, and so is what is not text."""

    def __init__(self, stream: str, path: Path) -> None:
        self._stream = stream
        self._file = path.open("rb")
        self._pending = b""

    def unread(self) -> int:
        return os.fstat(self._file.fileno()).st_size - self._file.tell()

    def look(self, tell: Callable[..., None]) -> bool:
        """Tell the next lines; True when there may be more."""
        data = self._file.read(LOOK_BYTES_MAX)
        *lines, self._pending = re.split(rb"\r\n|\n|\r", self._pending + data)
        self._tell_lines(lines, tell)
        return len(data) == LOOK_BYTES_MAX

    def end(self, tell: Callable[..., None]) -> None:
        if self._pending:
            self._tell_lines([self._pending], tell)
        self._file.close()

    def _tell_lines(self, lines: list[bytes], tell: Callable[..., None]) -> None:
        for line in lines:
            tell(type=self._stream, text=line.decode("utf-8", "replace") or "\n")


def stamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


class Agent:
    """The routes of one sandbox's execd."""

    def __init__(self, grace_seconds: float, ping_seconds: float, closing: threading.Event) -> None:
        self.grace_seconds = grace_seconds
        self.ping_seconds = ping_seconds
        self.keeps_time = True
        """False makes it deaf to the timeout of a command."""
        self.closing = closing

    def answer(self, box: Box, request: Request, path: str) -> Reply:
        while not box.awake.wait(0.05):
            if self.closing.is_set():
                return Reply(dropped=True)
        name = f"{request.method} {path}"
        for pattern, handler in _ROUTES:
            match = re.fullmatch(pattern, name)
            if match is not None:
                return handler(self, box, request, *match.groups())
        return Reply(404, b"404 page not found", {"content-type": "text/plain"})

    # Commands.

    def command(self, box: Box, request: Request) -> Reply:
        body = request.json()
        if not body.get("command"):
            return _invalid(
                "Key: 'RunCommandRequest.Command' Error:Field validation for 'Command' failed on the 'required' tag"
            )
        cwd = body.get("cwd")
        if cwd and not box.real(cwd).is_dir():
            return _invalid(f"working directory does not exist: {cwd}: stat {cwd}: no such file or directory")
        if cwd and not Path(cwd).is_relative_to(box.root) and Path(cwd).is_dir():
            body["command"] = f"cd {cwd} && {body['command']}"
        command = Command(box, body if self.keeps_time else {**body, "timeout": 0}, self.ping_seconds)
        box.commands[command.id] = command
        return self._stream(command.events())

    def _stream(self, events: Iterator[dict[str, Any]]) -> Reply:
        def chunks() -> Iterator[bytes]:
            for event in events:
                yield json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"
            self.closing.wait(self.grace_seconds)  # as the real one holds every stream

        headers = {"cache-control": "no-cache", "content-type": "text/event-stream", "x-accel-buffering": "no"}
        return Reply(200, headers=headers, stream=chunks())

    def interrupt(self, box: Box, request: Request) -> Reply:
        command = box.commands.get(request.one("id"))
        if command is None or not command.interrupt():
            return refused(500, "RUNTIME_ERROR", "error interruptting code context. no such session")
        return Reply()

    def status(self, box: Box, request: Request, identity: str) -> Reply:
        command = box.commands.get(identity)
        if command is None:
            return refused(404, "INVALID_REQUEST_BODY", f"command not found: {identity}")
        return told(200, command.status())

    def logs(self, box: Box, request: Request, identity: str) -> Reply:
        command = box.commands.get(identity)
        if command is None:
            return refused(404, "INVALID_REQUEST_BODY", f"command not found: {identity}")
        data = command.output()
        cursor = int(request.one("cursor", "0"))
        headers = {"content-type": "text/plain; charset=utf-8", "execd-commands-tail-cursor": str(len(data))}
        return Reply(200, data[cursor:], headers)

    def session(self, box: Box, request: Request) -> Reply:
        identity = str(uuid4())
        box.sessions.add(identity)
        return told(200, {"session_id": identity})

    def session_run(self, box: Box, request: Request, identity: str) -> Reply:
        """State between runs is kept as a file that each run reads and writes."""
        if identity not in box.sessions:
            return refused(404, "CONTEXT_NOT_FOUND", f"session {identity} not found")
        kept = box.root / f".session-{identity}"
        body = request.json()
        body["command"] = (
            f"[ -f {kept} ] && . {kept}\n{body['command']}\ncode=$?\n"
            f"{{ export -p; echo \"cd '$PWD'\"; }} > {kept}; exit $code"
        )
        command = Command(box, body, self.ping_seconds)
        events = ({**event, "text": identity} if event["type"] == "init" else event for event in command.events())
        return self._stream(events)

    def session_end(self, box: Box, request: Request, identity: str) -> Reply:
        if identity not in box.sessions:
            return refused(404, "CONTEXT_NOT_FOUND", f"session {identity} not found")
        box.sessions.discard(identity)
        return Reply()

    def pty(self, box: Box, request: Request) -> Reply:
        return told(201, {"session_id": str(uuid4())})

    # Files.

    def upload(self, box: Box, request: Request) -> Reply:
        parts = _parts(request)
        metadata = [data for name, filename, data in parts if name == "metadata" and filename]
        contents = [data for name, filename, data in parts if name == "file" and filename]
        if not metadata:
            return refused(400, "INVALID_FILE_METADATA", "metadata file is missing")
        if len(metadata) != len(contents):
            return refused(400, "INVALID_FILE", f"metadata and file count mismatch: {len(metadata)} vs {len(contents)}")
        for raw, data in zip(metadata, contents, strict=True):
            meta = json.loads(raw)
            target = box.real(meta["path"])
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
            except OSError as error:
                return refused(500, "RUNTIME_ERROR", f"error opening destination file {meta['path']}. {error.strerror}")
            target.chmod(int(str(meta.get("mode") or 755), 8))
        return Reply()

    def download(self, box: Box, request: Request) -> Reply:
        path = request.one("path")
        if not path:
            return refused(400, "MISSING_QUERY", "missing query parameter 'path'")
        target = box.real(path)
        try:
            if target.is_dir():
                return Reply(500, b"seeker can't seek\n", {"content-type": "text/plain; charset=utf-8"})
            data = target.read_bytes()
        except OSError as error:
            return _file_error(path, "open", error)
        headers = {"content-type": "application/octet-stream", "accept-ranges": "bytes"}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
        if wanted is None:
            return Reply(200, data, headers)
        start, end = int(wanted[1]), int(wanted[2] or len(data) - 1)
        if start >= len(data):
            text = {"content-type": "text/plain; charset=utf-8", "content-range": f"bytes */{len(data)}"}
            return Reply(416, b"invalid range: failed to overlap\n", text)
        end = min(end, len(data) - 1)
        return Reply(206, data[start : end + 1], {**headers, "content-range": f"bytes {start}-{end}/{len(data)}"})

    def info(self, box: Box, request: Request) -> Reply:
        found = {}
        for path in request.query.get("path", []):
            try:
                found[path] = _described(path, box.real(path))
            except OSError as error:
                return _file_error(path, "lstat", error, "file not found: ")
            except KeyError:
                return refused(500, "RUNTIME_ERROR", "path references undefined environment variables")
        return told(200, found)

    def directory(self, box: Box, request: Request) -> Reply:
        path, depth = request.one("path"), int(request.one("depth", "1"))
        target = box.real(path)
        if not os.path.lexists(target):
            return _file_error(path, "lstat", FileNotFoundError())
        if target.is_symlink() or not target.is_dir():
            return refused(400, "INVALID_REQUEST_BODY", f"path is not a directory: {path}")
        entries = [entry for entry in sorted(target.rglob("*")) if len(entry.relative_to(target).parts) <= depth]
        return told(200, [_described(f"{path.rstrip('/')}/{entry.relative_to(target)}", entry) for entry in entries])

    def search(self, box: Box, request: Request) -> Reply:
        path, pattern = request.one("path"), request.one("pattern")
        target = box.real(path)
        found = sorted(entry for entry in target.rglob(pattern.removeprefix("**/")) if entry.is_file())
        return told(200, [_described(f"{path.rstrip('/')}/{entry.relative_to(target)}", entry) for entry in found])

    def make_directories(self, box: Box, request: Request) -> Reply:
        for path, meta in request.json().items():
            box.real(path).mkdir(parents=True, exist_ok=True)
            box.real(path).chmod(int(str(meta.get("mode") or 755), 8))
        return Reply()

    def remove(self, box: Box, request: Request) -> Reply:
        for path in request.query.get("path", []):
            target = box.real(path)
            if target.is_dir():
                return refused(500, "RUNTIME_ERROR", f"error removing file {path}. path is a directory: {path}")
            if target.exists():
                target.unlink()
        return Reply()

    def remove_directories(self, box: Box, request: Request) -> Reply:
        for path in request.query.get("path", []):
            shutil.rmtree(box.real(path), ignore_errors=True)
        return Reply()

    def move(self, box: Box, request: Request) -> Reply:
        for item in request.json():
            if box.real(item["dest"]).exists():
                message = f"error accessing file: destination path already exists: {item['dest']}"
                return refused(500, "RUNTIME_ERROR", message)
            box.real(item["src"]).rename(box.real(item["dest"]))
        return Reply()

    def permissions(self, box: Box, request: Request) -> Reply:
        for path, meta in request.json().items():
            box.real(path).chmod(int(str(meta["mode"]), 8))
        return Reply()

    def replace(self, box: Box, request: Request) -> Reply:
        for path, item in request.json().items():
            target = box.real(path)
            target.write_text(target.read_text().replace(item["old"], item["new"]))
        return Reply()

    def metrics(self, box: Box, request: Request) -> Reply:
        figures = {"cpu_count": 2, "cpu_used_pct": 1.5, "mem_total_mib": 1024.5, "mem_used_mib": 100.5}
        return told(200, {**figures, "timestamp": int(SystemClock().now().timestamp() * 1000)})


_ROUTES: list[tuple[str, Callable[..., Reply]]] = [
    ("GET /ping", lambda agent, box, request: Reply()),
    ("POST /command", Agent.command),
    ("DELETE /command", Agent.interrupt),
    (r"GET /command/status/([^/]+)", Agent.status),
    (r"GET /command/([^/]+)/logs", Agent.logs),
    ("POST /session", Agent.session),
    (r"POST /session/([^/]+)/run", Agent.session_run),
    (r"DELETE /session/([^/]+)", Agent.session_end),
    ("POST /pty", Agent.pty),
    ("POST /files/upload", Agent.upload),
    ("GET /files/download", Agent.download),
    ("GET /files/info", Agent.info),
    ("GET /files/search", Agent.search),
    ("POST /files/mv", Agent.move),
    ("POST /files/permissions", Agent.permissions),
    ("POST /files/replace", Agent.replace),
    ("DELETE /files", Agent.remove),
    ("GET /directories/list", Agent.directory),
    ("POST /directories", Agent.make_directories),
    ("DELETE /directories", Agent.remove_directories),
    ("GET /metrics", Agent.metrics),
]


def _invalid(why: str) -> Reply:
    return refused(400, "INVALID_REQUEST_BODY", f"invalid request, validation error {why}")


def _file_error(path: str, call: str, error: OSError, prefix: str = "") -> Reply:
    if isinstance(error, FileNotFoundError):
        return refused(404, "FILE_NOT_FOUND", f"file not found. {prefix}{path}: {call}: no such file or directory")
    return refused(500, "RUNTIME_ERROR", f"error accessing file: {call} {path}: {error.strerror}")


def _described(path: str, target: Path) -> dict[str, Any]:
    found = target.lstat()
    kinds = {stat.S_IFDIR: "directory", stat.S_IFREG: "file", stat.S_IFLNK: "symlink"}
    at = stamp(datetime.fromtimestamp(found.st_mtime, UTC))
    return {
        "path": path, "type": kinds.get(stat.S_IFMT(found.st_mode), "other"), "size": found.st_size, "modified_at": at,
        "created_at": at, "owner": "root", "group": "root", "mode": int(f"{stat.S_IMODE(found.st_mode):o}"),
    }  # fmt: skip


def _parts(request: Request) -> list[tuple[str, str | None, bytes]]:
    boundary = request.headers["content-type"].partition("boundary=")[2].strip('"').encode()
    parts = []
    for raw in request.body.split(b"--" + boundary)[1:-1]:
        head, _, data = raw.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        headers = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + b"\r\n\r\n")
        disposition = headers["content-disposition"].params
        parts.append((str(disposition.get("name")), disposition.get("filename"), data.removesuffix(b"\r\n")))
    return parts
