"""Policies, templates, profiles, and the secrets that sandboxes may be given."""

from typing import Annotated, Optional

import typer

from .given import read, whole_secret
from .output import Format, say, show, show_list
from .sandboxes import CpuOption, DiskOption, MemoryOption
from .session import LimitOption, OutputOption, ProjectOption, YesOption, confirmed, connected, pairs, project_of

policies = typer.Typer(name="policy", help="Where sandboxes may run (operators).", no_args_is_help=True)
templates = typer.Typer(name="template", help="What sandboxes start from.", no_args_is_help=True)
profiles = typer.Typer(name="profile", help="Named defaults of creates.", no_args_is_help=True)
secrets = typer.Typer(name="secret", help="Secrets that a project's sandboxes may be given.", no_args_is_help=True)
ScopeArgument = Annotated[str, typer.Argument(metavar="SCOPE", help="global, an organization's id or a project's id.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Its name.")]
FileArgument = Annotated[typer.FileText, typer.Argument(metavar="FILE", help="JSON; - is standard input.")]
IfVersionOption = Annotated[
    Optional[int], typer.Option("--if-version", help="Only if it is this version; 0 where there must be none.")
]


@policies.command("list")
def list_policies(limit: LimitOption = None, output: OutputOption = Format.table) -> None:
    """List policies by scope."""
    with connected(operator=True) as client:
        show_list(
            client.policies.list(at_most=limit),
            output,
            (("SCOPE", "scope"), ("VERSION", "version"), ("EXTERNAL", "rules.external"), ("UPDATED", "updatedAt"),
             ("WARNINGS", "warnings")),
        )  # fmt: skip


@policies.command("get")
def get_policy(scope: ScopeArgument, output: OutputOption = Format.json) -> None:
    """Show a policy. Its `rules` can be changed and set again."""
    with connected(operator=True) as client:
        show(client.policies.get(scope), output)


@policies.command("set")
def set_policy(
    scope: ScopeArgument, file: FileArgument, if_version: IfVersionOption = None, output: OutputOption = Format.json
) -> None:  # fmt: skip
    """Replace the rules of a scope, from a file that holds them or a whole policy as `get` wrote it."""
    given = read(file)
    with connected(operator=True) as client:
        rules = given["rules"] if isinstance(given.get("rules"), dict) else given
        show(client.policies.put(scope, rules, version=if_version), output)


@policies.command("rm")
def remove_policy(scope: ScopeArgument, yes: YesOption = False) -> None:
    """Remove the policy of an organization or project; the wider ones go on to apply."""
    confirmed(f"Remove the policy of {scope}?", yes)
    with connected(operator=True) as client:
        client.policies.delete(scope)
        say(scope)


@templates.command("list")
def list_templates(limit: LimitOption = None, output: OutputOption = Format.table) -> None:
    """List templates by name."""
    with connected() as client:
        show_list(
            client.templates.list(at_most=limit),
            output,
            (("NAME", "name"), ("VERSION", "version"), ("SIZE", "resources"), ("IMAGES", "images")),
        )


@templates.command("get")
def get_template(name: NameArgument, output: OutputOption = Format.table) -> None:
    """Show a template."""
    with connected() as client:
        show(client.templates.get(name), output)


@templates.command("set")
def set_template(
    name: NameArgument,
    image: Annotated[Optional[list[str]], typer.Option("--image", metavar="POOL=IMAGE", help="Repeatable.")] = None,
    cpu: CpuOption = None, memory: MemoryOption = None, disk: DiskOption = None, if_version: IfVersionOption = None,
    output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """Make or replace a template (operators)."""
    size = {"cpu": cpu, "memoryMiB": memory, "diskGiB": disk}
    with connected(operator=True) as client:
        made = client.templates.put(
            name, images=pairs(image or [], "image"), version=if_version,
            resources={part: value for part, value in size.items() if value is not None},
        )  # fmt: skip
        show(made, output)


@templates.command("rm")
def remove_template(name: NameArgument, yes: YesOption = False) -> None:
    """Remove a template; what was made from it goes on (operators)."""
    confirmed(f"Remove the template {name!r}?", yes)
    with connected(operator=True) as client:
        client.templates.delete(name)
        say(name)


@profiles.command("list")
def list_profiles(limit: LimitOption = None, output: OutputOption = Format.table) -> None:
    """List profiles by name."""
    with connected() as client:
        show_list(
            client.profiles.list(at_most=limit),
            output,
            (("NAME", "name"), ("VERSION", "version"), ("ABOUT", "description")),
        )


@profiles.command("get")
def get_profile(name: NameArgument, output: OutputOption = Format.json) -> None:
    """Show a profile."""
    with connected() as client:
        show(client.profiles.get(name), output)


@profiles.command("set")
def set_profile(
    name: NameArgument, file: FileArgument,
    about: Annotated[Optional[str], typer.Option("--about", help="What it is for.")] = None,
    if_version: IfVersionOption = None, output: OutputOption = Format.json,
) -> None:  # fmt: skip
    """Make or replace a profile, from a file with fields of a create (operators)."""
    with connected(operator=True) as client:
        show(client.profiles.put(name, read(file), description=about, version=if_version), output)


@profiles.command("rm")
def remove_profile(name: NameArgument, yes: YesOption = False) -> None:
    """Remove a profile (operators)."""
    confirmed(f"Remove the profile {name!r}?", yes)
    with connected(operator=True) as client:
        client.profiles.delete(name)
        say(name)


@secrets.command("list")
def list_secrets(project: ProjectOption = None, limit: LimitOption = None, output: OutputOption = Format.table) -> None:
    """List a project's secrets; values are told to nobody."""
    with connected() as client:
        show_list(
            client.secrets.list(project=project_of(client, project), at_most=limit),
            output,
            (("NAME", "name"), ("VERSION", "version"), ("UPDATED", "updatedAt"), ("BY", "updatedBy")),
        )


@secrets.command("set")
def set_secret(name: NameArgument, project: ProjectOption = None, output: OutputOption = Format.table) -> None:
    """Keep a secret. Its value is asked for, or is all of standard input; never an argument."""
    value = whole_secret(name)
    with connected() as client:
        show(client.secrets.put(name, value, project=project_of(client, project)), output)


@secrets.command("rm")
def remove_secret(name: NameArgument, project: ProjectOption = None, yes: YesOption = False) -> None:
    """Forget a secret; sandboxes that were given it keep it until they end."""
    confirmed(f"Forget the secret {name!r}?", yes)
    with connected() as client:
        client.secrets.delete(name, project=project_of(client, project))
        say(name)
