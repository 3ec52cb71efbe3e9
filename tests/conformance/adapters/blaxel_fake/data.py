"""The data plane's part: commands told line by line, of which a plain answer holds only the end, and files."""

from __future__ import annotations

import email.parser
import email.policy
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress

from tests.conformance.adapters.stand_in.box import Box, code_of, follow
from tests.conformance.adapters.stand_in.http import Reply, Request, told


def refused(status: int, message: str) -> Reply:
    return told(status, {"error": message})


def run(box: Box, request: Request) -> Reply:
    body = request.json()
    if not body.get("command"):
        return refused(400, "command is required")
    process = box.start(["/bin/sh", "-c", body["command"]], env=body.get("env"), cwd=body.get("workingDir"))
    stream = _lines(process, follow(process), body.get("name", ""), body.get("timeout") or 0)
    return Reply(200, headers={"content-type": "application/x-ndjson"}, stream=stream)


def _lines(
    process: subprocess.Popen[bytes], written: Iterator[tuple[str, bytes]], name: str, seconds: float
) -> Iterator[bytes]:
    def expire() -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(seconds or 3_600, expire)
    timer.daemon = True
    timer.start()
    yield json.dumps({"type": "keepalive"}).encode() + b"\n"
    held = {"stdout": b"", "stderr": b""}
    for stream, data in written:
        *whole, held[stream] = (held[stream] + data).split(b"\n")
        for line in whole:  # what ended it is lost
            yield json.dumps({"type": stream, "data": line.decode("utf-8", "replace")}).encode() + b"\n"
    timer.cancel()
    for stream, rest in held.items():
        if rest:
            yield json.dumps({"type": stream, "data": rest.decode("utf-8", "replace")}).encode() + b"\n"
    result = {"pid": str(process.pid), "name": name, "status": "completed", "exitCode": code_of(process)}
    yield json.dumps({"type": "result", "data": json.dumps(result)}).encode() + b"\n"


def write(box: Box, request: Request, path: str) -> Reply:
    kind = request.headers.get("content-type", "")
    content = request.json()["content"].encode() if "json" in kind else _parts(request)["file"]
    target = box.real(path)
    if target.is_dir():
        return refused(422, "path is a directory")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return told(200, {"message": "File created", "path": path})


def read(box: Box, request: Request, path: str) -> Reply:
    target = box.real(path)
    if not target.is_file():
        return refused(404, "file not found")
    return Reply(200, target.read_bytes(), {"content-type": "application/octet-stream"})


def _parts(request: Request) -> dict[str, bytes]:
    boundary = request.headers["content-type"].partition("boundary=")[2].strip('"').encode()
    found = {}
    for piece in request.body.split(b"--" + boundary)[1:-1]:
        head, _, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        parsed = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + b"\r\n\r\n")
        found[str(parsed.get_param("name", header="content-disposition"))] = content.removesuffix(b"\r\n")
    return found
