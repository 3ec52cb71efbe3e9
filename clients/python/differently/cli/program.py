"""From arguments to an exit code: every failure ends here, told on stderr with what to do next."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import cast

import typer

from .._failure import DifferentlyError
from . import exits
from .failures import Wrong, told, usage_told
from .tree import app

UsageError = cast("type[Exception]", typer.BadParameter.__mro__[1])
"""Typer's own or click's, by its version."""


def run(arguments: Sequence[str]) -> int:
    """Carry out one command line."""
    command = typer.main.get_command(app)
    try:
        code = command.main(args=list(arguments), prog_name="differently", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else exits.OK
    except UsageError as wrong:
        usage_told(wrong)
        return exits.USAGE
    except Wrong as wrong:
        told(wrong.failure)
        return wrong.code
    except (DifferentlyError, OSError) as failed:
        if isinstance(failed, BrokenPipeError):
            return _closed()
        told(failed)
        return exits.of(failed)
    except UnicodeEncodeError:
        print("A name or value is not UTF-8, and the API takes nothing else. Nothing was sent of it.", file=sys.stderr)
        return exits.USAGE
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return exits.INTERRUPTED


def _closed() -> int:
    """Whoever reads our output has enough, as `head` does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exits.OK
