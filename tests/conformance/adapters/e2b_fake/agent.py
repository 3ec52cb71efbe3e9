"""envd's part: processes by Connect RPC and files by HTTP, with its hazards.

A process is killed alone at its timeout, a stream ends only when nobody holds its pipes any more, `stdin` that was not
spoken of stays open, and zero values are left out of every answer.
"""

from __future__ import annotations

import base64
import email.parser
import email.policy
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tests.conformance.adapters.stand_in.box import Box, follow
from tests.conformance.adapters.stand_in.http import Reply, Request, told

FRAME_LAST = 2


def frame(message: Any, flags: int = 0) -> bytes:
    payload = json.dumps(message, separators=(",", ":")).encode()
    return bytes([flags]) + len(payload).to_bytes(4, "big") + payload


def refused(status: int, code: str, message: str) -> Reply:
    return told(status, {"code": code, "message": message})


class Agent:
    def __init__(self) -> None:
        self.processes: dict[str, dict[int, subprocess.Popen[bytes]]] = {}

    def answer(self, box: Box, request: Request) -> Reply:
        for name, handler in _ROUTES.items():
            if name == f"{request.method} {request.path}":
                return handler(self, box, request)
        return refused(404, "unimplemented", "404 page not found")

    # Processes.

    def start(self, box: Box, request: Request) -> Reply:
        body = json.loads(request.body[5:])
        asked = body["process"]
        cwd = asked.get("cwd")
        if cwd and not box.real(cwd).is_dir():
            return self._ended({"error": {"code": "invalid_argument", "message": f"cwd '{cwd}' does not exist"}})
        # The real one goes through a shell as well, so a program that is missing is 127.
        words = ["/bin/sh", "-c", 'exec "$@"', "sh", asked["cmd"], *asked.get("args", [])]
        stdin = subprocess.PIPE if body.get("stdin", True) else subprocess.DEVNULL
        process = box.start(words, env=asked.get("envs"), cwd=cwd, stdin=stdin)
        self.processes.setdefault(box.id, {})[process.pid] = process
        seconds = int(request.headers.get("connect-timeout-ms", "0")) / 1000
        return Reply(
            200,
            headers={"content-type": "application/connect+json"},
            stream=self._events(process, follow(process), seconds),
        )

    def _ended(self, last: Any) -> Reply:
        stream = iter([frame(last, FRAME_LAST)])
        return Reply(200, headers={"content-type": "application/connect+json"}, stream=stream)

    def _events(
        self, process: subprocess.Popen[bytes], written: Iterator[tuple[str, bytes]], seconds: float
    ) -> Iterator[bytes]:
        late = threading.Event()

        def expire() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(seconds, expire) if seconds else None
        if timer:
            timer.daemon = True
            timer.start()
        yield frame({"event": {"start": {"pid": process.pid}}})
        for stream, data in written:
            yield frame({"event": {"data": {stream: base64.b64encode(data).decode()}}})
        code = process.wait()
        if timer:
            timer.cancel()
        if late.is_set():
            yield frame({"error": {"code": "deadline_exceeded", "message": "context deadline exceeded"}}, FRAME_LAST)
            return
        yield frame({"event": {"end": _end(code)}})
        yield frame({}, FRAME_LAST)

    def _process(self, box: Box, request: Request) -> subprocess.Popen[bytes] | None:
        found = self.processes.get(box.id, {}).get(request.json()["process"]["pid"])
        return found if found is not None and found.poll() is None else None

    def send_input(self, box: Box, request: Request) -> Reply:
        process = self._process(box, request)
        if process is None or process.stdin is None:
            return refused(404, "not_found", "process not found")
        process.stdin.write(base64.b64decode(request.json()["input"]["stdin"]))
        process.stdin.flush()
        return told(200, {})

    def close_stdin(self, box: Box, request: Request) -> Reply:
        process = self._process(box, request)
        if process is None or process.stdin is None:
            return refused(404, "not_found", "process not found")
        process.stdin.close()
        return told(200, {})

    def send_signal(self, box: Box, request: Request) -> Reply:
        process = self._process(box, request)
        if process is None:
            return refused(404, "not_found", "process not found")
        process.send_signal(getattr(signal, request.json()["signal"].removeprefix("SIGNAL_")))
        return told(200, {})

    def list_processes(self, box: Box, request: Request) -> Reply:
        found = self.processes.get(box.id, {})
        return told(200, {"processes": [{"pid": pid, "config": {"cmd": "/bin/sh"}} for pid, process in found.items()
                                        if process.poll() is None]})  # fmt: skip

    # Files.

    def health(self, box: Box, request: Request) -> Reply:
        return Reply(204)

    def read(self, box: Box, request: Request) -> Reply:
        path = box.real(request.one("path"))
        if path.is_dir():
            return told(400, {"code": 400, "message": f"path '{path}' is a directory"})
        if not path.exists():
            return told(404, {"code": 404, "message": f"file '{path}' does not exist"})
        return Reply(200, path.read_bytes(), {"content-type": "application/octet-stream"})

    def write(self, box: Box, request: Request) -> Reply:
        path = box.real(request.one("path"))
        if path.is_dir():
            return told(400, {"code": 400, "message": f"path '{path}' is a directory"})
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_uploaded(request))
        return told(200, [{"name": path.name, "path": str(path), "type": "file"}])

    def list_dir(self, box: Box, request: Request) -> Reply:
        path = box.real(request.json()["path"])
        if not path.is_dir():
            return refused(404, "not_found", "directory not found")
        return told(200, {"entries": [_entry(str(entry)) for entry in sorted(path.iterdir())]})

    def stat(self, box: Box, request: Request) -> Reply:
        path = box.real(request.json()["path"])
        if not path.exists():
            return refused(404, "not_found", "file not found")
        return told(200, {"entry": _entry(str(path))})

    def make_dir(self, box: Box, request: Request) -> Reply:
        path = box.real(request.json()["path"])
        if path.exists():
            return refused(409, "already_exists", "directory already exists")
        path.mkdir(parents=True)
        return told(200, {"entry": _entry(str(path))})

    def remove(self, box: Box, request: Request) -> Reply:
        path = box.real(request.json()["path"])
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        return told(200, {})


def _end(code: int) -> dict[str, Any]:
    if code < 0:
        # As the Go runtime tells it: no code, and the signal by its name.
        return {"exitCode": -1, "status": f"signal: {(signal.strsignal(-code) or '').lower()}"}
    failed = {"exitCode": code, "error": f"exit status {code}"} if code else {}
    return {"exited": True, "status": f"exit status {code}", **failed}


def _entry(path: str) -> dict[str, Any]:
    about = os.stat(path, follow_symlinks=False)
    kind = "DIRECTORY" if os.path.isdir(path) else "FILE"
    size = {"size": str(about.st_size)} if about.st_size else {}
    return {"name": os.path.basename(path), "type": f"FILE_TYPE_{kind}", "path": path, "mode": about.st_mode & 0o777,
            "permissions": "-rw-r--r--", "owner": "user", "group": "user", **size,
            "modifiedTime": "2026-11-29T12:00:00Z"}  # fmt: skip


def _uploaded(request: Request) -> bytes:
    kind = request.headers.get("content-type", "")
    if not kind.startswith("multipart/form-data"):
        return request.body
    boundary = kind.partition("boundary=")[2].strip('"').encode()
    part = request.body.partition(b"--" + boundary + b"\r\n")[2]
    head, _, rest = part.partition(b"\r\n\r\n")
    parsed = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + b"\r\n\r\n")
    assert parsed.get_param("name", header="content-disposition") == "file"
    return rest.partition(b"\r\n--" + boundary)[0]


_ROUTES: dict[str, Callable[..., Reply]] = {
    "POST /process.Process/Start": Agent.start,
    "POST /process.Process/SendInput": Agent.send_input,
    "POST /process.Process/CloseStdin": Agent.close_stdin,
    "POST /process.Process/SendSignal": Agent.send_signal,
    "POST /process.Process/List": Agent.list_processes,
    "POST /filesystem.Filesystem/ListDir": Agent.list_dir,
    "POST /filesystem.Filesystem/Stat": Agent.stat,
    "POST /filesystem.Filesystem/MakeDir": Agent.make_dir,
    "POST /filesystem.Filesystem/Remove": Agent.remove,
    "GET /health": Agent.health,
    "GET /files": Agent.read,
    "POST /files": Agent.write,
}
