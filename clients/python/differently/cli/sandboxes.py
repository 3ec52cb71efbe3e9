"""Sandboxes: make, find, change, move and end them."""

from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from .copying import copy
from .failures import note
from .output import Format, age, say, show, show_list
from .session import LimitOption, OutputOption, ProjectOption, connected, pairs, project_of
from .watching import Line

if TYPE_CHECKING:
    from .._sync.sandbox import Sandbox

app = typer.Typer(name="sandbox", help="Make, use and end sandboxes.", no_args_is_help=True)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The sandbox.")]
TemplateOption = Annotated[Optional[str], typer.Option("--template", "-t", help="The template to start from.")]
ImageOption = Annotated[Optional[str], typer.Option("--image", help="An image in place of the template's.")]
ProfileOption = Annotated[Optional[str], typer.Option("--profile", help="Named defaults for what is left out.")]
SnapshotOption = Annotated[Optional[str], typer.Option("--snapshot", metavar="ID", help="The snapshot to start from.")]
CpuOption = Annotated[Optional[float], typer.Option("--cpu", help="Virtual CPUs.")]
MemoryOption = Annotated[Optional[int], typer.Option("--memory", metavar="MIB", help="Memory in MiB.")]
DiskOption = Annotated[Optional[int], typer.Option("--disk", metavar="GIB", help="Disk in GiB.")]
PoolOption = Annotated[Optional[list[str]], typer.Option("--pool", help="Only this pool; repeatable.")]
RegionOption = Annotated[Optional[list[str]], typer.Option("--region", help="Only this region; repeatable.")]
CapabilityOption = Annotated[
    Optional[list[str]], typer.Option("--capability", help="Something that its pool must offer.")
]
ClassificationOption = Annotated[Optional[str], typer.Option("--classification", help="Of the work in it.")]
EgressOption = Annotated[
    Optional[list[str]],
    typer.Option("--allow", metavar="HOST", help="It may reach only this; repeatable; 'none' for nothing."),
]
EnvOption = Annotated[
    Optional[list[str]], typer.Option("--env", "-e", metavar="NAME=VALUE", help="A variable; repeatable.")
]
SecretOption = Annotated[
    Optional[list[str]], typer.Option("--secret", metavar="NAME=SECRET", help="A secret of the project as a variable.")
]
LabelOption = Annotated[Optional[list[str]], typer.Option("--label", metavar="KEY=VALUE", help="A label; repeatable.")]
TtlOption = Annotated[Optional[int], typer.Option("--ttl", metavar="SECONDS", help="How long it lives.")]
IdleOption = Annotated[
    Optional[int], typer.Option("--idle-timeout", metavar="SECONDS", help="Unused for so long it is put to rest.")
]
MemoryTooOption = Annotated[
    bool, typer.Option("--memory-too", help="Take running processes along, where the pool can.")
]
QueueTimeoutOption = Annotated[
    Optional[int], typer.Option("--queue-timeout", metavar="SECONDS", help="Wait no longer for room; 0 not at all.")
]
PriorityOption = Annotated[Optional[int], typer.Option("--priority", min=0, max=9, help="9 before 0 in the queue.")]
PreemptibleOption = Annotated[bool, typer.Option("--preemptible", help="It may be paused for work that waits.")]
KeyOption = Annotated[
    Optional[str], typer.Option("--idempotency-key", help="A name for it: with the same one nothing is made twice.")
]
WaitOption = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done.")]
TimeoutOption = Annotated[Optional[float], typer.Option("--timeout", metavar="SECONDS", help="How long to wait.")]
COLUMNS = (
    ("ID", "id"), ("STATUS", "status"), ("POOL", "pool"), ("TEMPLATE", "template"), ("AGE", "age"),
    ("EXPIRES", "expiresAt"), ("LABELS", "labels"),
)  # fmt: skip

DETAILS = (
    ("id", "id"), ("status", "status"), ("reason", "statusReason.detail"), ("waits for", "waitingFor"),
    ("pool", "pool"), ("region", "region"), ("template", "template"), ("image", "image"),
    ("made from", "snapshotId"), ("forked from", "forkedFrom"), ("size", "resources"), ("labels", "labels"),
    ("secrets", "secrets"), ("egress", "effective.egress"), ("project", "project"), ("created", "createdAt"),
    ("running since", "startedAt"), ("expires", "expiresAt"), ("ended", "endedAt"), ("last used", "lastActivityAt"),
    ("sleeps at", "idleAt"), ("busy with", "busyWith"), ("backend's id", "backendRef"),
)  # fmt: skip
"""What people ask of a sandbox; `-o json` has all of it."""


def egress_of(allowed: Optional[list[str]]) -> Optional[dict[str, list[str]]]:
    if not allowed:
        return None
    return {"allow": [] if allowed == ["none"] else allowed}


@app.command()
def create(
    template: TemplateOption = None, image: ImageOption = None, profile: ProfileOption = None,
    snapshot: SnapshotOption = None, cpu: CpuOption = None, memory: MemoryOption = None, disk: DiskOption = None,
    env: EnvOption = None, secret: SecretOption = None, label: LabelOption = None, pool: PoolOption = None,
    region: RegionOption = None, capability: CapabilityOption = None, classification: ClassificationOption = None,
    allow: EgressOption = None, ttl: TtlOption = None, idle_timeout: IdleOption = None,
    queue_timeout: QueueTimeoutOption = None, priority: PriorityOption = None, preemptible: PreemptibleOption = False,
    key: KeyOption = None,
    project: ProjectOption = None, wait: WaitOption = True, timeout: TimeoutOption = None,
    output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """Make a sandbox and wait until it runs. Its id is the only thing on stdout.

    Interrupted or out of time, the sandbox stays, and its id is told.
    """
    with connected() as client:
        made = client.sandboxes.create(
            template=template, image=image, profile=profile, snapshot=snapshot, cpu=cpu, memory_mib=memory,
            disk_gib=disk, env=pairs(env or [], "variable") or None, secrets=pairs(secret or [], "secret") or None,
            labels=pairs(label or [], "label") or None, pools=pool or None, regions=region or None,
            capabilities=capability or None, classification=classification, egress=egress_of(allow),
            ttl_seconds=ttl, idle_timeout_seconds=idle_timeout, queue_timeout_seconds=queue_timeout,
            priority=priority, preemptible=preemptible or None, idempotency_key=key,
            project=project_of(client, project), wait=False,
        )  # fmt: skip
        settled(made, wait, timeout, output)


def settled(made: "Sandbox", wait: bool, timeout: Optional[float], output: Format) -> None:
    """Its id, once it runs; where it does not come so far, still its id."""
    if wait:
        try:
            with Line(made.id) as line:
                made.wait("running", timeout_seconds=timeout, on_progress=line.progress)
        except BaseException:
            note(f"{made.id} was made and is {made.status}")
            raise
    if output is Format.table:
        say(made.id)
    else:
        show(made.info, output)


@app.command("list")
def list_(
    status: Annotated[Optional[list[str]], typer.Option("--status", help="Only in this status; repeatable.")] = None,
    label: LabelOption = None,
    ended: Annotated[bool, typer.Option("--ended", help="Also those that are going or gone.")] = False,
    project: ProjectOption = None, limit: LimitOption = None, output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """List sandboxes, newest first."""
    with connected() as client:
        found = client.sandboxes.list(
            status=status or [], labels=pairs(label or [], "label"), ended=ended,
            project=project_of(client, project), at_most=limit,
        )  # fmt: skip
        documents = [sandbox.info.to_dict() for sandbox in found]
        if output is Format.table:
            documents = [{**entry, "age": age(entry["createdAt"])} for entry in documents]
        show_list(documents, output, COLUMNS)


@app.command()
def get(id: IdArgument, output: OutputOption = Format.table) -> None:
    """Show a sandbox, also one that has ended."""
    with connected() as client:
        show(client.sandboxes.get(id).info, output, DETAILS)


@app.command()
def wait(
    id: IdArgument,
    status: Annotated[Optional[list[str]], typer.Option("--for", help="The status to wait for; repeatable.")] = None,
    timeout: TimeoutOption = None,
) -> None:
    """Wait until a sandbox is in a status: running, unless another one is named."""
    with connected() as client:
        sandbox = client.sandboxes.get(id)
        with Line(id) as line:
            sandbox.wait(status or ["running"], timeout_seconds=timeout, on_progress=line.progress)
        say(sandbox.status)


@app.command("rm")
def remove(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The sandboxes.")],
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until they are gone.")] = False,
) -> None:
    """Delete sandboxes. Accepted in every state and final; repeating it is success."""
    with connected() as client:
        found = [client.sandboxes.get(id) for id in ids]
        for sandbox in found:
            sandbox.delete()
            if not wait:
                say(sandbox.id)
        for sandbox in found if wait else []:
            with Line(sandbox.id) as line:
                sandbox.wait(["terminated", "failed"], on_progress=line.progress)
            say(sandbox.id)


@app.command()
def update(
    id: IdArgument, ttl: TtlOption = None, idle_timeout: IdleOption = None, label: LabelOption = None,
    output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """Change lifetime or labels. A lifetime counts from now; labels are replaced as a whole."""
    with connected() as client:
        labels = pairs(label, "label") if label else None
        sandbox = client.sandboxes.get(id)
        show(sandbox.update(ttl_seconds=ttl, idle_timeout_seconds=idle_timeout, labels=labels).info, output, DETAILS)


@app.command()
def keepalive(id: IdArgument) -> None:
    """Count as use, which wakes one that was put to rest for want of use."""
    with connected() as client:
        say(client.sandboxes.get(id).keepalive().status)


@app.command()
def fork(
    id: IdArgument, label: LabelOption = None, env: EnvOption = None, ttl: TtlOption = None,
    memory_too: MemoryTooOption = False,
    wait: WaitOption = True, timeout: TimeoutOption = None, output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """Make a sandbox that starts from what this one is now."""
    with connected() as client:
        made = client.sandboxes.get(id).fork(
            kind="memory" if memory_too else None, labels=pairs(label or [], "label") or None,
            env=pairs(env or [], "variable") or None, ttl_seconds=ttl, wait=False,
        )  # fmt: skip
        settled(made, wait, timeout, output)


def _move(kind: str, id: str, wait: bool, timeout: Optional[float]) -> None:
    with connected() as client:
        sandbox = client.sandboxes.get(id)
        options: dict[str, Any] = {"wait": wait, "timeout_seconds": timeout}
        with Line(id) as line:
            getattr(sandbox, kind)(on_progress=line.progress, **options)
        say(sandbox.status)


@app.command()
def stop(id: IdArgument, wait: WaitOption = True, timeout: TimeoutOption = None) -> None:
    """Stop a sandbox: its disk is kept, what runs in it ends."""
    _move("stop", id, wait, timeout)


@app.command()
def start(id: IdArgument, wait: WaitOption = True, timeout: TimeoutOption = None) -> None:
    """Start a stopped sandbox again."""
    _move("start", id, wait, timeout)


@app.command()
def pause(id: IdArgument, wait: WaitOption = True, timeout: TimeoutOption = None) -> None:
    """Pause a sandbox: memory and disk are kept."""
    _move("pause", id, wait, timeout)


@app.command()
def resume(id: IdArgument, wait: WaitOption = True, timeout: TimeoutOption = None) -> None:
    """Resume a paused sandbox where it was."""
    _move("resume", id, wait, timeout)


@app.command()
def ls(
    id: IdArgument, path: Annotated[str, typer.Argument(help="The directory.")] = ".",
    output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """List a directory of a sandbox."""
    with connected() as client:
        show_list(
            client.sandboxes.get(id).files.list(path),
            output,
            (("MODE", "mode"), ("SIZE", "size"), ("MODIFIED", "modifiedAt"), ("DIR", "isDir"), ("NAME", "name")),
        )


@app.command()
def cp(
    source: Annotated[str, typer.Argument(help="A file here, ID:PATH, or - for standard input.")],
    target: Annotated[str, typer.Argument(help="A file here, ID:PATH, or - for standard output.")],
) -> None:
    """Copy a file into a sandbox, of any size, or out of one, up to 100 MiB, byte for byte."""
    with connected() as client:
        copy(client, source, target)
