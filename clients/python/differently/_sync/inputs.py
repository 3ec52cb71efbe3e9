"""Input of commands that one call cannot carry: it goes into a file of the sandbox, which the command reads."""

# Made from _async: python scripts/sync_client.py

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .._failure import DifferentlyError
from ..commands import Command, fits_in_a_call
from .files import Files

READING = 'exec <"$1" && cd "$2" && shift 2 && exec "$@"'


@contextmanager
def staged(
    files: Files, command: Command, cwd: str | None, stdin: str | bytes | None
) -> Iterator[tuple[Command, str | None, str | bytes | None]]:  # fmt: skip
    """Command, directory and input as one call can carry them, for as long as the block lasts."""
    if stdin is None or fits_in_a_call(stdin):
        yield command, cwd, stdin
        return
    path = f".input-{uuid.uuid4().hex}"
    try:
        files.write(path, stdin)
        words = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        yield ["/bin/sh", "-c", READING, "sh", f"./{path}", cwd or ".", *words], None, None
    finally:
        with suppress(DifferentlyError):
            files.delete(path)
