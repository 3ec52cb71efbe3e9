"""What outlives a sandbox, and what leads into one: snapshots and ports."""

from typing import Annotated, Optional

import typer

from .output import Format, age, say, show, show_list
from .sandboxes import IdArgument, LabelOption, MemoryTooOption, TimeoutOption, TtlOption, WaitOption, settled
from .session import LimitOption, OutputOption, ProjectOption, connected, pairs, project_of
from .watching import Line

snapshots = typer.Typer(name="snapshot", help="Copies of sandboxes that outlive them.", no_args_is_help=True)
ports = typer.Typer(name="port", help="Ports of sandboxes, reachable for a while.", no_args_is_help=True)
SnapshotArgument = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="The snapshot.")]
PortArgument = Annotated[int, typer.Argument(metavar="PORT", min=1, max=65_535, help="The port.")]


@snapshots.command("create")
def take(
    id: IdArgument,
    name: Annotated[Optional[str], typer.Option("--name", help="What to call it.")] = None,
    memory_too: MemoryTooOption = False,
    keep: Annotated[
        Optional[int], typer.Option("--keep", metavar="SECONDS", help="Delete it after so long; 30 days without.")
    ] = None,
    wait: WaitOption = True, output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """Take a snapshot of a sandbox and wait until it is ready."""
    with connected() as client:
        made = client.snapshots.create(
            id, name, kind="memory" if memory_too else None, retention_seconds=keep, wait=False
        )
        if wait:
            with Line(made.id) as line:
                line.tell("taking it")
                made.wait()
        if output is Format.table:
            say(made.id)
        else:
            show(made.info, output)


@snapshots.command("list")
def list_(
    sandbox: Annotated[Optional[str], typer.Option("--sandbox", metavar="ID", help="Only of this sandbox.")] = None,
    project: ProjectOption = None, limit: LimitOption = None, output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """List snapshots, newest first."""
    with connected() as client:
        found = client.snapshots.list(sandbox=sandbox, project=project_of(client, project), at_most=limit)
        documents = [snapshot.info.to_dict() for snapshot in found]
        if output is Format.table:
            documents = [{**entry, "age": age(entry["createdAt"])} for entry in documents]
        show_list(
            documents,
            output,
            (("ID", "id"), ("STATUS", "status"), ("KIND", "kind"), ("SANDBOX", "sandboxId"), ("NAME", "name"),
             ("BYTES", "sizeBytes"), ("AGE", "age")),
        )  # fmt: skip


@snapshots.command("get")
def get(snapshot: SnapshotArgument, output: OutputOption = Format.table) -> None:
    """Show a snapshot."""
    with connected() as client:
        show(client.snapshots.get(snapshot).info, output)


@snapshots.command("rm")
def remove(snapshots: Annotated[list[str], typer.Argument(metavar="SNAPSHOT...", help="The snapshots.")]) -> None:
    """Delete snapshots. Accepted in every state and final."""
    with connected() as client:
        for id in snapshots:
            client.snapshots.get(id).delete()
            say(id)


@snapshots.command("restore")
def restore(
    snapshot: SnapshotArgument, label: LabelOption = None, ttl: TtlOption = None, wait: WaitOption = True,
    timeout: TimeoutOption = None, output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """Make a sandbox from a snapshot, as it was when that was taken."""
    with connected() as client:
        made = client.sandboxes.create(
            snapshot=snapshot, labels=pairs(label or [], "label") or None, ttl_seconds=ttl, wait=False
        )
        settled(made, wait, timeout, output)


@ports.command("open")
def open_(id: IdArgument, port: PortArgument, ttl: TtlOption = None, output: OutputOption = Format.table) -> None:
    """Open a port and tell its address. Whoever has the address can reach it, so treat it as a secret."""
    with connected() as client:
        opened = client.sandboxes.get(id).ports.open(port, ttl_seconds=ttl)
        if output is Format.table:
            say(opened.url)
        else:
            show(opened, output)


@ports.command("list")
def list_ports(id: IdArgument, output: OutputOption = Format.table) -> None:
    """List a sandbox's open ports, without their addresses."""
    with connected() as client:
        show_list(
            client.sandboxes.get(id).ports.list(),
            output,
            (("PORT", "port"), ("STATUS", "status"), ("OPENED", "openedAt"), ("EXPIRES", "expiresAt")),
        )


@ports.command("close")
def close(id: IdArgument, port: PortArgument) -> None:
    """Close a port; its address leads nowhere from then on."""
    with connected() as client:
        say(client.sandboxes.get(id).ports.close(port).status)
