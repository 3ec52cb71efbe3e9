"""What people give besides options: files, and secrets, which are never arguments."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
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
    return line.rstrip("\r\n")


def secret_values(names: Sequence[str]) -> dict[str, str]:
    """A line each; one alone may have many, and what is left over was meant for something."""
    if len(names) == 1:
        return {names[0]: whole_secret(names[0])}
    values = {name: secret_value(name) for name in names}
    if not sys.stdin.isatty() and sys.stdin.read(1):
        raise typer.BadParameter(f"Standard input has more than {len(names)} lines; nothing was kept.")
    return values


def whole_secret(what: str) -> str:
    """One secret alone: all of standard input, since a private key has many lines. One line loses its end."""
    if sys.stdin.isatty():
        return secret_value(what)
    text = sys.stdin.read()
    if not text:
        raise typer.BadParameter(f"{what}: there is nothing on standard input.")
    line = text.rstrip("\r\n")
    return text if "\n" in line else line
