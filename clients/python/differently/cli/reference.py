"""The written reference of the command line, made from the commands themselves.

python -m differently.cli.reference docs/reference/cli.md           write it
python -m differently.cli.reference docs/reference/cli.md --check   fail when what is written is not current
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from . import exits
from .tree import app

MADE = "<!-- Made from the code: python -m differently.cli.reference docs/reference/cli.md -->"
HEAD = """# The command line

`differently` comes with the client (`differently-sandbox[cli]`, see
[its page](../../clients/python/README.md)). It talks to the server of, in this order: `--login NAME` or `--url` with
`DIFFERENTLY_API_KEY`; the variables `DIFFERENTLY_URL` and `DIFFERENTLY_API_KEY`; the login of `DIFFERENTLY_LOGIN`, or
the current one; the `make run` of this folder, whose keys go to this machine alone.

Results go to stdout, everything else to stderr. `-o json` and `-o yaml` write what the API answered; a list is always a
list. Progress and colour are for terminals; `NO_COLOR` turns colour off. Secrets are asked for or read from standard
input; they are never arguments. `differently --install-completion` teaches your shell."""
VARIABLES = (
    ("DIFFERENTLY_URL", "the server's address"),
    ("DIFFERENTLY_API_KEY", "the key"),
    ("DIFFERENTLY_LOGIN", "the login to use"),
    ("DIFFERENTLY_OUTPUT", "`table`, `json` or `yaml`, where `-o` is not given"),
    ("DIFFERENTLY_CONFIG", "the file of logins, in place of `~/.config/differently/logins.json`"),
    ("DIFFERENTLY_DATA_DIR", "where `make run` keeps its data, in place of `.differently`"),
    ("NO_COLOR", "no colour when set"),
)


def page() -> str:
    """All of it."""
    codes = _table(("exit code", "meaning"), [(str(code), text) for code, text in exits.MEANINGS.items()])
    variables = _table(("variable", "meaning"), [(f"`{name}`", text) for name, text in VARIABLES])
    parts = [MADE, HEAD, "## Exit codes", codes, "## Variables", variables]
    parts += ["## Options before the command", _options(typer.main.get_command(app))]
    for path, command in _commands(typer.main.get_command(app), "differently"):
        parts += [f"## `{path}`", *_command(path, command)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _command(path: str, command: Any) -> Iterator[str]:
    arguments = [entry for entry in command.params if _kind(entry) == "argument"]
    words = " ".join(_argument(entry) for entry in arguments)
    yield f"```text\n{path} [OPTIONS] {words}".rstrip() + "\n```"
    yield "\n\n".join(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
    told = [(f"`{_argument(entry).strip('[]')}`", _sentence(entry.help)) for entry in arguments]
    yield _table(("argument", "about"), told) if told else ""
    yield _options(command)


def _argument(entry: Any) -> str:
    name = entry.metavar or entry.name.upper()
    return name if entry.required else f"[{name}]"


def _options(command: Any) -> str:
    options = [entry for entry in command.params if _kind(entry) == "option" and entry.name != "help"]
    options = [entry for entry in options if not entry.name.endswith("_completion")]
    rows = [(", ".join(f"`{name}`" for name in _names(entry)), _about(entry)) for entry in options]
    return _table(("option", "about"), rows) if rows else ""


def _names(entry: Any) -> Iterator[str]:
    value = "" if entry.is_flag else f" {entry.metavar or entry.name.rstrip('_').upper()}"
    for name in (*entry.opts, *entry.secondary_opts):
        yield name + (value if name.startswith("--") else "")


def _about(entry: Any) -> str:
    told = _sentence(entry.help)
    if isinstance(entry.default, enum.Enum):
        told += " One of " + ", ".join(f"`{choice.value}`" for choice in type(entry.default)) + "."
    elif not entry.is_flag and isinstance(entry.default, (int, float)):
        told += f" Default: `{entry.default}`."
    return told + (" Required." if entry.required else "")


def _kind(entry: Any) -> str:
    return str(entry.param_type_name)


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split())


def _table(head: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = [head, ("---", "---"), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def main(arguments: list[str]) -> int:
    path = Path(arguments[0])
    text = page()
    if "--check" in arguments:
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return 0
        print(f"{path} is not current: run python -m differently.cli.reference {path}", file=sys.stderr)
        return 1
    path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
