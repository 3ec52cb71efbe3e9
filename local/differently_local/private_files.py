"""Files of the data directory, whole or not there and readable by their owner alone; locks that die with a holder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from typing import Any


def make_directory(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def write(path: Path, text: str) -> None:
    """Replace the file in one step. The new one is private from the moment it exists."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        part.unlink()
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: dict[str, Any]) -> None:
    write(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Empty when the file is missing or is not a JSON object."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


class Lock:
    """An exclusive lock on a file, held for as long as any process has the descriptor open.

    The system lets go of it when the last holder dies, however it dies, so a held lock proves a living holder.
    """

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self) -> bool:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def fileno(self) -> int:
        return self._handle

    def close(self) -> None:
        """Let go here; a child that inherited the descriptor keeps the lock."""
        os.close(self._handle)
