"""What every command has: which server, how results are written, and the options that many share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from .output import Format

if TYPE_CHECKING:
    from .._sync.client import Client

OutputOption = Annotated[
    Format, typer.Option("--output", "-o", help="How to write results.", envvar="DIFFERENTLY_OUTPUT")
]
ProjectOption = Annotated[
    Optional[str], typer.Option("--project", metavar="ID", help="The project; needed with an operator's key.")
]
LimitOption = Annotated[Optional[int], typer.Option("--limit", min=1, help="At most so many; all without it.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


class Session:
    """Set by the options before the command."""

    login: str | None = None
    url: str | None = None


SESSION = Session()


@contextmanager
def connected(*, operator: bool = False) -> Iterator[Client]:
    """The client of this call. With `make run`, operators' commands take the operator's key by themselves."""
    from .._sync.client import Client

    with Client(SESSION.url, login=SESSION.login, operator=operator) as client:
        yield client


def project_of(client: Client, given: str | None) -> str | None:
    """The one that was named, else the one that the login names."""
    return given or (client.project if client.source.startswith("login ") else None)


def pairs(texts: Sequence[str], what: str) -> dict[str, str]:
    """`["A=1"]` -> `{"A": "1"}`."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is no {what}; write NAME=VALUE.")
        found[name] = value
    return found


def confirmed(question: str, yes: bool) -> None:
    """Go on only when the person at the terminal, or `--yes`, says so."""
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{question} Say so with --yes, as there is nobody to ask.")
    typer.confirm(question, abort=True, err=True)
