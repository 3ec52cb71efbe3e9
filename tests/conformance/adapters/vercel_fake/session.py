"""What is done in a session: commands told as lines of JSON, and files in archives."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.conformance.adapters.stand_in.box import Box, code_of, follow
from tests.conformance.adapters.stand_in.http import Reply, Request, told


def refused(status: int, code: str, message: str = "") -> Reply:
    return told(status, {"error": {"code": code, "message": message or code}})


def run(box: Box, session: str, request: Request) -> Reply:
    body = request.json()
    if not body.get("command"):
        return refused(400, "bad_request", "command is required")
    try:
        process = box.start([body["command"], *body.get("args", [])], env=body.get("env"), cwd=body.get("cwd"))
    except OSError as error:
        return refused(400, "bad_request", str(error))
    stream = _lines(process, follow(process), session, (body.get("timeout") or 0) / 1000)
    return Reply(200, headers={"content-type": "application/x-ndjson"}, stream=stream)


def _lines(
    process: subprocess.Popen[bytes], written: Iterator[tuple[str, bytes]], session: str, seconds: float
) -> Iterator[bytes]:
    def line(value: Any) -> bytes:
        return json.dumps(value).encode() + b"\n"

    def expire() -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(seconds or 3_600, expire)
    timer.daemon = True
    timer.start()
    command = {"id": f"cmd_{process.pid}", "name": "sh", "args": [], "cwd": "/vercel/sandbox", "sessionId": session}
    yield line({"command": {**command, "exitCode": None, "startedAt": 1}})
    for stream, data in written:
        yield line({"stream": stream, "data": data.decode("utf-8", "replace")})
    timer.cancel()
    yield line({"command": {**command, "exitCode": code_of(process), "startedAt": 1, "durationMs": 1}})


def write(box: Box, request: Request) -> Reply:
    folder = box.real(request.headers["x-cwd"])
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(request.body), mode="r:gz") as archive:
        for member in archive:
            source = archive.extractfile(member)
            assert source is not None
            path = folder / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(source.read())
            path.chmod(member.mode)
    return told(200, {})


def read(box: Box, request: Request) -> Reply:
    path: Path = box.real(request.json()["path"])
    if not path.is_file():
        return Reply(404)
    return Reply(200, path.read_bytes(), {"content-type": "application/octet-stream"})
