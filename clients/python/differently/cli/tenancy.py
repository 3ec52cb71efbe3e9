"""Organizations, projects, quotas and keys: for operators."""

import json
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from .failures import note
from .output import Format, say, show, show_list
from .session import LimitOption, OutputOption, YesOption, confirmed, connected, pairs

if TYPE_CHECKING:
    from .._sync.client import Client
    from .._sync.tenancy import Orgs, Projects

orgs = typer.Typer(name="org", help="Organizations (operators).", no_args_is_help=True)
projects = typer.Typer(name="project", help="Projects of organizations (operators).", no_args_is_help=True)
quotas = typer.Typer(name="quota", help="What organizations and projects may hold.", no_args_is_help=True)
keys = typer.Typer(name="key", help="API keys (operators).", no_args_is_help=True)
TenantArgument = Annotated[str, typer.Argument(metavar="ID", help="An organization (org_…) or project (proj_…).")]
OrgArgument = Annotated[str, typer.Argument(metavar="ORG", help="The organization.")]
ProjectArgument = Annotated[str, typer.Argument(metavar="PROJECT", help="The project.")]
KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="The key's id, not the key itself.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")]
ReasonOption = Annotated[Optional[str], typer.Option("--reason", help="Told to whoever is refused.")]
StopOption = Annotated[bool, typer.Option("--stop-running", help="Also stop what runs.")]
COLUMNS = (("ID", "id"), ("NAME", "name"), ("STATE", "state"), ("CREATED", "createdAt"))


def tenants_of(client: "Client", id: str) -> "Orgs | Projects":
    """By the id's prefix."""
    if id.startswith("org_"):
        return client.orgs
    if id.startswith("proj_"):
        return client.projects
    raise typer.BadParameter(f"{id!r} is no organization (org_…) and no project (proj_…).")


@orgs.command("list")
def list_orgs(limit: LimitOption = None, output: OutputOption = Format.table) -> None:
    """List organizations, oldest first."""
    with connected(operator=True) as client:
        show_list(client.orgs.list(at_most=limit), output, (*COLUMNS, ("WEIGHT", "weight")))


@orgs.command("create")
def create_org(
    name: NameArgument,
    weight: Annotated[Optional[int], typer.Option("--weight", min=1, help="Its share when several wait.")] = None,
    output: OutputOption = Format.table,
) -> None:
    """Make an organization and tell its id."""
    with connected(operator=True) as client:
        _made(client.orgs.create(name, weight=weight), output)


@orgs.command("get")
def get_org(org: OrgArgument, output: OutputOption = Format.table) -> None:
    """Show an organization."""
    with connected(operator=True) as client:
        show(client.orgs.get(org), output)


@orgs.command("update")
def update_org(
    org: OrgArgument, name: Annotated[Optional[str], typer.Option("--name", help="Another name.")] = None,
    weight: Annotated[Optional[int], typer.Option("--weight", min=1, help="Its share when several wait.")] = None,
    output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """Change an organization's name or weight."""
    with connected(operator=True) as client:
        show(client.orgs.update(org, name=name, weight=weight), output)


@projects.command("list")
def list_projects(org: OrgArgument, limit: LimitOption = None, output: OutputOption = Format.table) -> None:
    """List an organization's projects, oldest first."""
    with connected(operator=True) as client:
        show_list(client.projects.list(org, at_most=limit), output, COLUMNS)


@projects.command("create")
def create_project(org: OrgArgument, name: NameArgument, output: OutputOption = Format.table) -> None:
    """Make a project in an organization and tell its id."""
    with connected(operator=True) as client:
        _made(client.projects.create(org, name), output)


@projects.command("get")
def get_project(project: ProjectArgument, output: OutputOption = Format.table) -> None:
    """Show a project."""
    with connected(operator=True) as client:
        show(client.projects.get(project), output)


def _made(found: Any, output: Format) -> None:
    if output is Format.table:
        say(found.id)
    else:
        show(found, output)


def suspend(id: TenantArgument, reason: ReasonOption = None, stop_running: StopOption = False) -> None:
    """Let nothing new start in it; what runs goes on, unless it is stopped too."""
    with connected(operator=True) as client:
        say(tenants_of(client, id).suspend(id, reason=reason, stop_running=stop_running or None).state)


def unsuspend(id: TenantArgument) -> None:
    """Let new work into it again."""
    with connected(operator=True) as client:
        say(tenants_of(client, id).unsuspend(id).state)


def archive(id: TenantArgument, yes: YesOption = False) -> None:
    """Remove everything in it, for good, and keep its record."""
    confirmed(f"Remove everything in {id}, for good?", yes)
    with connected(operator=True) as client:
        say(tenants_of(client, id).archive(id).state)


def remove(id: TenantArgument, yes: YesOption = False) -> None:
    """Remove it and everything in it, for good."""
    confirmed(f"Remove {id} and everything in it, for good?", yes)
    with connected(operator=True) as client:
        say(tenants_of(client, id).delete(id).state)


for group in (orgs, projects):
    for name, command in (("suspend", suspend), ("unsuspend", unsuspend), ("archive", archive), ("rm", remove)):
        group.command(name)(command)


@quotas.command("get")
def get_quota(id: TenantArgument, output: OutputOption = Format.table) -> None:
    """Show limits and what is held of them."""
    with connected(operator=True) as client:
        found = tenants_of(client, id).quota(id).to_dict()
        show(found if output is not Format.table else _flattened(found), output)


def _flattened(found: dict[str, Any]) -> dict[str, Any]:
    limits = {f"limit {name}": value for name, value in found["limits"].items() if not isinstance(value, dict)}
    single = {f"limit of one {name}": value for name, value in found["limits"].get("perSandbox", {}).items()}
    used = {f"used {name}": value for name, value in found["used"].items()}
    return {**limits, **single, **used, "waiting": found.get("waiting")}


@quotas.command("set")
def set_quota(
    id: TenantArgument,
    limits: Annotated[
        list[str], typer.Argument(metavar="LIMIT=VALUE...", help="Such as maxConcurrent=50; null is none.")
    ],
    output: OutputOption = Format.table,
) -> None:
    """Change limits; those that are not named stay. Below what is held, nothing ends and nothing new is admitted."""
    changes = {name: _number(name, text) for name, text in pairs(limits, "limit").items()}
    with connected(operator=True) as client:
        tenants = tenants_of(client, id)
        now = tenants.quota(id).limits.to_dict()
        found = tenants.set_quota(id, {**now, **changes}).to_dict()
        show(found if output is not Format.table else _flattened(found), output)


def _number(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise typer.BadParameter(f"{name} is a number or null, not {text!r}.") from None


@quotas.command("repair")
def repair_quota(
    id: TenantArgument, dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """Count again what is held and put the counters right."""
    with connected(operator=True) as client:
        show(tenants_of(client, id).repair_quota(id, dry_run=dry_run), output)


@keys.command("list")
def list_keys(
    org: Annotated[Optional[str], typer.Option("--org", help="This organization's; operators' own without it.")] = None,
    limit: LimitOption = None, output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """List keys, oldest first; the keys themselves are not kept anywhere."""
    with connected(operator=True) as client:
        show_list(
            client.keys.list(org=org, at_most=limit),
            output,
            (("ID", "id"), ("NAME", "name"), ("SCOPE", "scope"), ("PROJECT", "project"), ("EXPIRES", "expiresAt"),
             ("REVOKED", "revokedAt")),
        )  # fmt: skip


@keys.command("create")
def create_key(
    name: NameArgument,
    project: Annotated[Optional[str], typer.Option("--project", metavar="ID", help="Its project.")] = None,
    operator: Annotated[bool, typer.Option("--operator", help="A key that may do everything.")] = False,
    expires_at: Annotated[
        Optional[str], typer.Option("--expires-at", metavar="TIME", help="Such as 2030-01-01T00:00:00Z.")
    ] = None,
    output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """Make a key. It is written once, to stdout, and kept nowhere."""
    if bool(project) == operator:
        raise typer.BadParameter("Give --project for a project's key, or --operator for one that may do everything.")
    with connected(operator=True) as client:
        made = client.keys.create(name, project=project, expires_at=expires_at)
        _token(made, output)


@keys.command("rotate")
def rotate_key(
    key: KeyArgument,
    grace: Annotated[
        Optional[int], typer.Option("--grace", metavar="SECONDS", help="How long the old one works beside it.")
    ] = None,
    output: OutputOption = Format.table,
) -> None:
    """Make a key in the place of another. It is written once, to stdout."""
    with connected(operator=True) as client:
        _token(client.keys.rotate(key, grace_seconds=grace), output)


def _token(made: Any, output: Format) -> None:
    if output is Format.table:
        note(f"{made.id} ({made.name}); this is the only time that the key is shown")
        say(made.token)
    else:
        show(made, output)


@keys.command("get")
def get_key(key: KeyArgument, output: OutputOption = Format.table) -> None:
    """Show what is known of a key."""
    with connected(operator=True) as client:
        show(client.keys.get(key), output)


@keys.command("revoke")
def revoke_key(key: KeyArgument, yes: YesOption = False) -> None:
    """Take a key back, for good, within a minute."""
    confirmed(f"Revoke {key}, for good?", yes)
    with connected(operator=True) as client:
        say(client.keys.revoke(key).id)
