"""Logins: which servers and keys this program knows, in a file that only you can read."""

import sys
from typing import Annotated, Optional

import typer

from ..logins import DEFAULT, Login, Logins
from .failures import note
from .output import Format, say, show_list
from .session import SESSION, OutputOption, YesOption, confirmed


def login(
    name: Annotated[str, typer.Argument(help="What to call it.")] = DEFAULT,
    url: Annotated[Optional[str], typer.Option("--url", metavar="URL", help="The server's address.")] = None,
    project: Annotated[
        Optional[str], typer.Option("--project", metavar="ID", help="The project that an operator's calls are about.")
    ] = None,
    key_stdin: Annotated[bool, typer.Option("--key-stdin", help="Read the key from standard input.")] = False,
) -> None:
    """Keep a server and a key, and use them from now on. The key is asked for, and tried before it is kept."""
    where = url or SESSION.url or _asked("Address of the server (https://…)")
    key = sys.stdin.readline().strip() if key_stdin else _asked("API key (it is not shown)", hidden=True)
    from .._sync.client import Client

    with Client(where, key) as client:
        client.capabilities()
        kept = Login(name, client.url, key, project)
    logins = Logins.of()
    logins.put(kept)
    note(f"login {name!r} is kept in {logins.path} and used from now on")


def _asked(what: str, hidden: bool = False) -> str:
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{what}: nobody is there to ask. Give --url, and the key with --key-stdin.")
    return str(typer.prompt(what, hide_input=hidden, err=True))


def use(name: Annotated[str, typer.Argument(help="The login to use from now on.")]) -> None:
    """Use another login from now on."""
    Logins.of().use(name)
    note(f"login {name!r} is used from now on")


def logins(output: OutputOption = Format.table) -> None:
    """List logins; keys are not told."""
    known = Logins.of()
    current = known.current
    found = [known.get(name) for name in known.names()]
    show_list(
        [
            {"name": entry.name, "url": entry.url, "project": entry.project, "current": entry.name == current}
            for entry in found
            if entry is not None
        ],
        output,
        (("NAME", "name"), ("URL", "url"), ("PROJECT", "project"), ("CURRENT", "current")),
    )


def logout(name: Annotated[str, typer.Argument(help="The login to forget.")], yes: YesOption = False) -> None:
    """Forget a login. The key itself goes on to work until it is revoked."""
    confirmed(f"Forget the login {name!r} and its key?", yes)
    say(f"forgot {name}" if Logins.of().remove(name) else f"there is no login {name}")


def add_to(app: typer.Typer) -> None:
    for command in (login, logins, use, logout):
        app.command()(command)
