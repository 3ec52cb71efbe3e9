"""The toolbox's part: commands that are waited for and files, with its hazards.

A command's words are fed to a shell's input, both its streams are one text that is no longer bytes, and a timeout ends
the group and loses what was written.
"""

from __future__ import annotations

import email.parser
import email.policy
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.conformance.adapters.stand_in.box import Box, code_of
from tests.conformance.adapters.stand_in.http import Reply, Request, told


def refused(status: int, message: str) -> Reply:
    return told(status, {"statusCode": status, "message": message, "method": "", "path": "", "timestamp": ""})


class Toolbox:
    def answer(self, box: Box, request: Request, path: str) -> Reply:
        handler = _ROUTES.get(f"{request.method} {path}")
        return refused(404, "404 page not found") if handler is None else handler(self, box, request)

    def execute(self, box: Box, request: Request) -> Reply:
        body = request.json()
        if not body.get("command"):
            return refused(400, "command is required")
        process = box.start(["/bin/sh"], env=body.get("envs"), cwd=body.get("cwd"), stdin=subprocess.PIPE, merged=True)
        try:
            output, _ = process.communicate(body["command"].encode(), timeout=body.get("timeout") or 60)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return refused(408, "command execution timeout")
        return told(200, {"exitCode": code_of(process), "result": output.decode("utf-8", "replace")})

    # Files.

    def listing(self, box: Box, request: Request) -> Reply:
        path = box.real(request.one("path"))
        if not path.is_dir():
            return refused(404, "no such directory")
        return told(200, [_entry(box, str(entry)) for entry in sorted(path.iterdir())])

    def info(self, box: Box, request: Request) -> Reply:
        path = box.real(request.one("path"))
        return told(200, _entry(box, str(path))) if path.exists() else refused(404, "no such file")

    def download(self, box: Box, request: Request) -> Reply:
        path = box.real(request.one("path"))
        if path.is_dir():
            return refused(400, "path is a directory")
        if not path.exists():
            return refused(404, "file not found")
        return Reply(200, path.read_bytes(), {"content-type": "application/octet-stream"})

    def bulk_download(self, box: Box, request: Request) -> Reply:
        parts = b""
        for name in request.json()["paths"]:
            head = f'--B\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
            parts += head.encode() + box.real(name).read_bytes() + b"\r\n"
        return Reply(200, parts + b"--B--\r\n", {"content-type": "multipart/form-data; boundary=B"})

    def bulk_upload(self, box: Box, request: Request) -> Reply:
        parts = _parts(request)
        for number in range(len(parts) // 2):
            path = box.real(parts[f"files[{number}].path"].decode())
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(parts[f"files[{number}].file"])
        return Reply(200)

    def folder(self, box: Box, request: Request) -> Reply:
        box.real(request.one("path")).mkdir(parents=True, exist_ok=True)
        return Reply(201)

    def remove(self, box: Box, request: Request) -> Reply:
        path = box.real(request.one("path"))
        if not path.exists():
            return refused(404, "file not found")
        if path.is_dir():
            if request.one("recursive") != "true":
                return refused(400, "cannot delete directory without recursive flag")
            shutil.rmtree(path)
        else:
            path.unlink()
        return Reply(204)

    def home(self, box: Box, request: Request) -> Reply:
        return told(200, {"dir": str(box.home)})


def _entry(box: Box, path: str) -> dict[str, Any]:
    about = os.stat(path, follow_symlinks=False)
    return {"name": os.path.basename(path), "isDir": os.path.isdir(path), "size": about.st_size, "mode": "-rw-r--r--",
            "modTime": "2026-11-29T12:00:00Z", "modifiedAt": "2026-11-29T12:00:00Z", "permissions": "0644",
            "owner": "daytona", "group": "daytona"}  # fmt: skip


def _parts(request: Request) -> dict[str, bytes]:
    boundary = request.headers["content-type"].partition("boundary=")[2].strip('"').encode()
    found = {}
    for piece in request.body.split(b"--" + boundary)[1:-1]:
        head, _, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        parsed = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + b"\r\n\r\n")
        found[str(parsed.get_param("name", header="content-disposition"))] = content.removesuffix(b"\r\n")
    return found


_ROUTES: dict[str, Callable[..., Reply]] = {
    "POST /process/execute": Toolbox.execute,
    "GET /files": Toolbox.listing,
    "GET /files/info": Toolbox.info,
    "GET /files/download": Toolbox.download,
    "POST /files/bulk-download": Toolbox.bulk_download,
    "POST /files/bulk-upload": Toolbox.bulk_upload,
    "POST /files/folder": Toolbox.folder,
    "DELETE /files": Toolbox.remove,
    "GET /user-home-dir": Toolbox.home,
    "GET /work-dir": Toolbox.home,
}
