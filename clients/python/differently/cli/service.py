"""Questions to the server itself."""

import typer

from .._version import VERSION
from .output import Format, say, show, show_list
from .sandboxes import (
    CapabilityOption,
    ClassificationOption,
    CpuOption,
    DiskOption,
    EgressOption,
    ImageOption,
    MemoryOption,
    PoolOption,
    ProfileOption,
    RegionOption,
    SnapshotOption,
    TemplateOption,
    egress_of,
)
from .session import LimitOption, OutputOption, ProjectOption, connected, project_of


def version(output: OutputOption = Format.table) -> None:
    """Tell the versions of this program and of the server."""
    with connected() as client:
        found = client.version().to_dict()
        show({"client": VERSION, "server": found["version"], "api": found.get("api"), "url": client.url}, output)


def capabilities(output: OutputOption = Format.table) -> None:
    """List the pools that this key may use, and what each can do."""
    with connected() as client:
        show_list(
            client.capabilities().to_dict()["pools"],
            output,
            (("POOL", "name"), ("TRUST", "trust"), ("REGION", "region"), ("ACCEPTING", "accepting"),
             ("FEATURES", "features")),
        )  # fmt: skip


def queue(limit: LimitOption = None, output: OutputOption = Format.table) -> None:
    """List what waits, for what and since when; with an operator's key everybody's."""
    with connected() as client:
        show_list(
            client.queue.list(at_most=limit),
            output,
            (("PLACE", "position"), ("SANDBOX", "sandbox"), ("PROJECT", "project"), ("PRIORITY", "priority"),
             ("SECONDS", "ageSeconds"), ("REASON", "reason"), ("DETAIL", "detail")),
        )  # fmt: skip


def explain(
    template: TemplateOption = None, image: ImageOption = None, profile: ProfileOption = None,
    snapshot: SnapshotOption = None, cpu: CpuOption = None, memory: MemoryOption = None, disk: DiskOption = None,
    pool: PoolOption = None, region: RegionOption = None, capability: CapabilityOption = None,
    classification: ClassificationOption = None, egress: EgressOption = None, project: ProjectOption = None,
    output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """Tell where a create with these options would go, and why not elsewhere. Nothing is made."""
    with connected() as client:
        found = client.explain(
            template=template, image=image, profile=profile, snapshot=snapshot, cpu=cpu, memory_mib=memory,
            disk_gib=disk, pools=pool or None, regions=region or None, capabilities=capability or None,
            classification=classification, egress=egress_of(egress), project=project_of(client, project),
        )  # fmt: skip
        if output is not Format.table:
            show(found, output)
            return
        say(f"{found.decision}: {found.summary}")
        show_list(
            found.to_dict()["candidates"],
            output,
            (("POOL", "pool"), ("ELIGIBLE", "eligible"), ("RANK", "rank"), ("TRUST", "trust"), ("REASON", "reason"),
             ("DETAIL", "detail"), ("HINT", "hint")),
        )  # fmt: skip


def add_to(app: typer.Typer) -> None:
    for command in (version, capabilities, queue, explain):
        app.command()(command)
