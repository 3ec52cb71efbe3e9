"""The audit log."""

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from .failures import Wrong, note
from .output import Format, show, show_list
from .session import LimitOption, OutputOption, connected
from .watching import Line, size

app = typer.Typer(name="audit", help="What happened, and whether it is what was sealed.", no_args_is_help=True)
OrgOption = Annotated[
    Optional[str], typer.Option("--org", metavar="ID", help="Whose events; for operators, who have none of their own.")
]
SinceOption = Annotated[
    Optional[str], typer.Option("--since", metavar="TIME", help="From this time on, such as 2030-01-01T00:00:00Z.")
]
ToOption = Annotated[Optional[str], typer.Option("--to", metavar="TIME", help="Up to this time.")]


@app.command("list")
def list_(
    org: OrgOption = None,
    action: Annotated[Optional[str], typer.Option("--action", help="Exact, or a beginning and *: 'sandbox.*'.")] = None,
    actor: Annotated[Optional[str], typer.Option("--actor", metavar="KEY", help="Who did it.")] = None,
    target: Annotated[Optional[str], typer.Option("--target", metavar="ID", help="What it was done to.")] = None,
    since: SinceOption = None, to: ToOption = None,
    everybody: Annotated[bool, typer.Option("--all", help="Every organization's (operators).")] = False,
    newest_first: Annotated[bool, typer.Option("--newest-first", help="The other way round.")] = False,
    limit: LimitOption = None, output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """List events in the order in which they were sealed."""
    with connected(operator=everybody or org is not None) as client:
        show_list(
            client.audit.list(
                org=org, newest_first=newest_first, actor=actor, action=action, target=target, since=since, to=to,
                at_most=limit,
            ),
            output,
            (("SEQ", "seq"), ("AT", "at"), ("ACTION", "action"), ("TARGET", "target"), ("ACTOR", "actor"),
             ("BEFORE", "before"), ("AFTER", "after")),
        )  # fmt: skip


@app.command()
def verify(org: OrgOption = None, output: OutputOption = Format.table) -> None:
    """Let the server compare every event with its chain; exits with 1 when one is not what was sealed.

    docs/how-to/verify-the-audit-log.md has a verifier that needs nothing of the server.
    """
    with connected(operator=org is not None) as client:
        with Line("audit") as line:
            for found in client.audit.verify(org=org):
                line.tell(f"{found.to_seq} of {found.size} events")
        show(found, output)
        if not found.intact:
            raise Wrong(RuntimeError(f"The log is not what was sealed: {found.problem}"), 1)


@app.command()
def export(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to write it; - is standard output.")],
    org: OrgOption = None,
) -> None:
    """Write the whole log as lines of JSON, for the verifier and for keeping."""
    with connected(operator=org is not None) as client:
        pieces = client.audit.export(org=org)
        if file == "-":
            for piece in pieces:
                sys.stdout.buffer.write(piece)
            return
        target = Path(file)
        fresh = target.with_name(f".{target.name}.part")
        try:
            with fresh.open("wb") as written, Line(file) as line:
                for piece in pieces:
                    written.write(piece)
                    line.tell_sometimes(size(written.tell()))
            fresh.replace(target)
        finally:
            fresh.unlink(missing_ok=True)
        note(f"{file} is whole: its last line has the size and the root of the log")
