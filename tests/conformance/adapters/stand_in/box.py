"""A sandbox's disk and processes, on this host: one directory, and whatever was started for it.

There is no root of a sandbox's own, so a command sees this host. Every process carries a mark in its environment, by
which all of them are found again, also those that left their process group.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

MARK = "STAND_IN_BOX"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class Box:
    id: str
    root: Path
    env: dict[str, str] = field(default_factory=dict)
    ran: bool = False
    """Something was started in it."""

    def __post_init__(self) -> None:
        for folder in (self.home, self.tmp):
            folder.mkdir(parents=True, exist_ok=True)
        self.awake = threading.Event()
        self.awake.set()

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def tmp(self) -> Path:
        return self.root / "tmp"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": PATH, "HOME": str(self.home), "TMPDIR": str(self.tmp), "LANG": "C.UTF-8", **self.env,
            MARK: str(self.root),
        }  # fmt: skip

    def real(self, path: str) -> Path:
        """Where a path of the sandbox lies on this host."""
        if not path.startswith("/"):
            return self.home / path
        inside = Path(os.path.normpath(path))
        return inside if inside.is_relative_to(self.root) else self.root / str(inside).lstrip("/")

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: int = subprocess.DEVNULL,
        merged: bool = False,
    ) -> subprocess.Popen[bytes]:
        """Raises `FileNotFoundError` for a program or a directory that is not there."""
        self.ran = True
        return subprocess.Popen(
            list(argv), cwd=self.real(cwd) if cwd else self.home, env={**self.environment, **(env or {})}, stdin=stdin,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT if merged else subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def freeze(self) -> None:
        self.awake.clear()
        self.signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal_all(signal.SIGCONT)
        self.awake.set()

    def end(self) -> None:
        """Every process and every file of it goes."""
        self.signal_all(signal.SIGKILL)
        self.awake.set()
        shutil.rmtree(self.root, ignore_errors=True)

    def copy(self, to: Path) -> Path:
        shutil.copytree(self.root, to, symlinks=True)
        return to

    def signal_all(self, number: int) -> None:
        if not self.ran:
            return
        mark = f"{MARK}={self.root}".encode()  # an id may be the same in another test that runs now
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), number)


def follow(process: subprocess.Popen[bytes]) -> Iterator[tuple[str, bytes]]:
    """What it writes to its pipes as `stdout` and `stderr`, until both are closed; read also when nobody listens.

    Reading begins at once, and the process is waited for, whether or not anybody takes what comes.
    """
    told: queue.SimpleQueue[tuple[str, bytes] | None] = queue.SimpleQueue()
    pipes = [(name, pipe) for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr)) if pipe]

    def pump(name: str, pipe: IO[bytes]) -> None:
        while data := os.read(pipe.fileno(), 32_768):
            told.put((name, data))
        pipe.close()
        told.put(None)

    for name, pipe in pipes:
        threading.Thread(target=pump, args=(name, pipe), name="stand-in-pipe", daemon=True).start()
    threading.Thread(target=process.wait, name="stand-in-process", daemon=True).start()
    return _pieces(told, len(pipes))


def _pieces(told: queue.SimpleQueue[tuple[str, bytes] | None], open_pipes: int) -> Iterator[tuple[str, bytes]]:
    while open_pipes:
        piece = told.get()
        if piece is None:
            open_pipes -= 1
        else:
            yield piece


def code_of(process: subprocess.Popen[bytes]) -> int:
    """As a shell tells it: 128 and the signal of one that was killed."""
    code = process.wait()
    return code if code >= 0 else 128 - code


def stamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
