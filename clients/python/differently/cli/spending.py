"""What was used, what it may cost, and what is known of pools."""

from typing import Annotated, Optional

import typer

from .output import Format, say, show, show_list
from .session import OutputOption, ProjectOption, YesOption, confirmed, connected, project_of
from .tenancy import TenantArgument

budgets = typer.Typer(name="budget", help="What may be spent in a month.", no_args_is_help=True)
OrgOption = Annotated[Optional[str], typer.Option("--org", metavar="ID", help="One organization (operators).")]
GroupOption = Annotated[
    Optional[str], typer.Option("--by", metavar="WHAT", help="org, project, pool, key, day or label:NAME.")
]
FromOption = Annotated[
    Optional[str], typer.Option("--from", metavar="DAY", help="The first day; of this month without.")
]
ToOption = Annotated[Optional[str], typer.Option("--to", metavar="DAY", help="The day behind the last one.")]
EverybodyOption = Annotated[bool, typer.Option("--all", help="Everybody's (operators).")]
ActionOption = Annotated[
    Optional[str], typer.Option("--action", help="Beyond it: alert, queue, pause or stop; alert without.")
]
CurrencyOption = Annotated[Optional[str], typer.Option("--currency", help="Such as EUR; USD without.")]
ThresholdOption = Annotated[
    Optional[list[int]], typer.Option("--at", metavar="PERCENT", help="Tell when so much is projected; repeatable.")
]


def usage(
    by: GroupOption = None, since: FromOption = None, to: ToOption = None, org: OrgOption = None,
    project: ProjectOption = None, everybody: EverybodyOption = False, output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """Report what was used and its estimated cost: this month's, by project, unless told otherwise."""
    with connected(operator=everybody or org is not None) as client:
        wanted = None if everybody or org else project_of(client, project)
        found = client.usage.report(group_by=by, since=since, to=to, org=org, project=wanted)
        show_list(
            found.to_dict()["items"],
            output,
            (("GROUP", "group"), ("SANDBOX-S", "sandboxSeconds"), ("CPU-S", "cpuSeconds"),
             ("MEMORY-GIB-S", "memoryGiBSeconds"), ("COST", "estimatedCost"), ("CURRENCY", "currency")),
        )  # fmt: skip


def trust(everybody: EverybodyOption = False, output: OutputOption = Format.table) -> None:
    """Report what is known of each pool, and how; as a table its first lines, as JSON all of it."""
    with connected(operator=everybody) as client:
        found = client.trust.report()
        if output is not Format.table:
            show(found, output)
            return
        show_list(found.to_dict()["pools"], output, (("POOL", "pool"), ("KIND", "adapter"), ("TRUST", "trust")))


@budgets.command("get")
def get_budget(id: TenantArgument, output: OutputOption = Format.table) -> None:
    """Show a budget, and what is spent and projected of it."""
    with connected(operator=True) as client:
        show(client.budgets.get(id), output)


@budgets.command("set")
def set_budget(
    id: TenantArgument,
    limit: Annotated[float, typer.Argument(metavar="LIMIT", min=0, help="What may be spent in a calendar month.")],
    action: ActionOption = None, currency: CurrencyOption = None, threshold: ThresholdOption = None,
    output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """Set what may be spent in a month, and what happens beyond it (operators)."""
    with connected(operator=True) as client:
        show(client.budgets.put(id, limit, currency=currency, thresholds=threshold or None, action=action), output)


@budgets.command("rm")
def remove_budget(id: TenantArgument, yes: YesOption = False) -> None:
    """Remove a budget (operators)."""
    confirmed(f"Remove the budget of {id}?", yes)
    with connected(operator=True) as client:
        client.budgets.delete(id)
        say(id)


def add_to(app: typer.Typer) -> None:
    for command in (usage, trust):
        app.command()(command)
