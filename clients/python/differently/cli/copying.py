"""Files between here and a sandbox."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from .watching import Line

if TYPE_CHECKING:
    from .._sync.client import Client
    from .._sync.sandbox import Sandbox


def copy(client: Client, source: str, target: str) -> None:
    """One side names a sandbox, `ID:PATH`; the other is a file here or `-`."""
    there, here = _sandbox_and_path(source), _sandbox_and_path(target)
    if (there is None) == (here is None):
        raise typer.BadParameter("One side is a sandbox, written ID:PATH, and the other a file here.")
    if there is not None:
        _out(client.sandboxes.get(there[0]), there[1], target)
    elif here is not None:
        _in(client.sandboxes.get(here[0]), source, here[1])


def _sandbox_and_path(text: str) -> tuple[str, str] | None:
    """An id is told by its prefix, so that a file here may hold a colon."""
    id, colon, path = text.partition(":")
    return (id, path) if colon and id.startswith("sbx_") else None


def _in(sandbox: Sandbox, source: str, path: str) -> None:
    if source == "-":
        _in_from_stdin(sandbox, _named(path, "stdin"))
        return
    local = Path(source)
    if local.is_dir():
        raise typer.BadParameter(f"{source} is a directory; copy an archive of it: tar c {source} | … cp - ID:x.tar")
    with Line(source) as line:
        sandbox.files.upload(local, _named(path, local.name), line.moved(local.stat().st_size))


def _in_from_stdin(sandbox: Sandbox, path: str) -> None:
    """By way of a file, since what is large is read twice."""
    import shutil
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="differently-") as kept, Line("stdin") as line:
        shutil.copyfileobj(sys.stdin.buffer, kept)
        kept.flush()
        sandbox.files.upload(kept.name, path, line.moved(Path(kept.name).stat().st_size))


def _out(sandbox: Sandbox, path: str, target: str) -> None:
    if target == "-":
        for chunk in sandbox.files.chunks(path):
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        return
    name = path.rstrip("/").rpartition("/")[2]
    local = Path(target) / name if Path(target).is_dir() or target.endswith(os.sep) else Path(target)
    with Line(path) as line:
        sandbox.files.download(path, local, line.moved(sandbox.files.stat(path).size))


def _named(path: str, name: str) -> str:
    """Into a directory, or where nothing is named, the file keeps its name."""
    return f"{path}{name}" if path in ("",) or path.endswith("/") else path
