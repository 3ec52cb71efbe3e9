"""What people give besides options: files, and secrets, which are never arguments."""

from __future__ import annotations

import json
import sys
from typing import Any

import typer


def read(file: Any) -> dict[str, Any]:
    """An object, from JSON."""
    try:
        found = json.load(file)
    except ValueError as wrong:
        raise typer.BadParameter(f"{file.name} is no JSON: {wrong}.") from None
    if not isinstance(found, dict):
        raise typer.BadParameter(f"{file.name} holds no object.")
    return found


def secret_value(what: str) -> str:
    """Arguments are seen by every process of a machine and kept in histories, so a secret is none."""
    if sys.stdin.isatty():
        return str(typer.prompt(f"{what} (it is not shown)", hide_input=True, err=True))
    line = sys.stdin.readline()
    if not line:
        raise typer.BadParameter(f"{what}: there is no line for it on standard input.")
    return line.rstrip("\n")
