"""Failures as people read them: what, why, what next, and the id that finds the call in the server's logs."""

from __future__ import annotations

import sys
from typing import Any

from .._failure import ApiError, DifferentlyError
from .output import plain, styled


class Wrong(Exception):
    """A failure with an exit code of its own."""

    def __init__(self, failure: BaseException, code: int) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.code = code


def told(failure: BaseException) -> None:
    """On stderr, whatever it is."""
    what = failure.message if isinstance(failure, ApiError) else str(failure) or type(failure).__name__
    lines = [styled("error: ", "red", sys.stderr) + plain(what)]
    if isinstance(failure, ApiError):
        lines[0] += f" ({failure.code})"
        shown = ", ".join(
            f"{name}={value}" for name, value in failure.details.items() if name not in ("stdout", "stderr")
        )
        lines += [f"  details: {plain(shown)}"] if shown else []
    if isinstance(failure, DifferentlyError) and failure.advice:
        lines.append(f"  next: {failure.advice}")
    if isinstance(failure, ApiError) and failure.request_id:
        lines.append(f"  request: {plain(failure.request_id)}")
    print("\n".join(lines), file=sys.stderr)


def usage_told(wrong: Any) -> None:
    """What was typed wrong, and where to read on."""
    context = wrong.ctx
    path = context.command_path if context is not None else "differently"
    print(f"{styled('error: ', 'red', sys.stderr)}{wrong.format_message()}", file=sys.stderr)
    print(f"  next: {path} --help", file=sys.stderr)


def note(text: str) -> None:
    """Something to know that is no result."""
    print(text, file=sys.stderr)
