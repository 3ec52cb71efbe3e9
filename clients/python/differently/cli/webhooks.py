"""Webhooks: who is told of what happens, and what became of it."""

import sys
from typing import Annotated, Any, Optional

import typer

from .failures import note
from .output import Format, say, show, show_list
from .session import LimitOption, OutputOption, ProjectOption, YesOption, confirmed, connected, project_of

app = typer.Typer(name="webhook", help="URLs that are told of what happens.", no_args_is_help=True)
WebhookArgument = Annotated[str, typer.Argument(metavar="WEBHOOK", help="The webhook.")]
EventArgument = Annotated[str, typer.Argument(metavar="EVENT", help="The event's id.")]
OrgOption = Annotated[Optional[str], typer.Option("--org", metavar="ID", help="Of an organization (operators).")]
OperatorOption = Annotated[
    bool, typer.Option("--operator", help="With `make run`: the operator's key, which has the installation's own.")
]
EventsOption = Annotated[
    Optional[list[str]], typer.Option("--event", help="A type, or a family such as `sandbox.*`; repeatable.")
]
DescriptionOption = Annotated[Optional[str], typer.Option("--description", help="What it is for.")]
COLUMNS = (
    ("ID", "id"), ("URL", "url"), ("EVENTS", "events"), ("ENABLED", "enabled"), ("WHY", "disabled.code"),
    ("DESCRIPTION", "description"),
)  # fmt: skip
DELIVERIES = (
    ("EVENT", "id"), ("TYPE", "type"), ("SUBJECT", "subject"), ("STATUS", "status"), ("TRIES", "tries"),
    ("ANSWER", "lastTry.status"), ("FAILURE", "lastTry.failure"), ("NEXT", "nextTryAt"),
)  # fmt: skip


@app.command("create")
def create(
    url: Annotated[str, typer.Argument(metavar="URL", help="https, to a public address; - reads it from stdin.")],
    events: EventsOption = None, description: DescriptionOption = None, org: OrgOption = None,
    project: ProjectOption = None, operator: OperatorOption = False, output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """Tell a URL of what happens from now on. The signing secret is written once, to stdout."""
    with connected(operator=operator or org is not None) as client:
        wanted = None if operator or org else project_of(client, project)
        address = sys.stdin.readline().strip() if url == "-" else url
        made = client.webhooks.create(address, events=events, description=description, org=org, project=wanted)
        _secret(made, output)


def _secret(made: Any, output: Format) -> None:
    if output is Format.table:
        note(f"{made.id}; this is the only time that the signing secret is shown")
        say(made.secret)
    else:
        show(made, output)


@app.command("list")
def list_webhooks(
    org: OrgOption = None, project: ProjectOption = None, operator: OperatorOption = False,
    output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """List webhooks, oldest first."""
    with connected(operator=operator or org is not None) as client:
        wanted = None if operator or org else project_of(client, project)
        show_list(client.webhooks.list(org=org, project=wanted), output, COLUMNS)


@app.command("get")
def get(webhook: WebhookArgument, operator: OperatorOption = False, output: OutputOption = Format.table) -> None:
    """Show a webhook and how its receiver is doing."""
    with connected(operator=operator) as client:
        show(client.webhooks.get(webhook), output)


@app.command("update")
def update(
    webhook: WebhookArgument,
    url: Annotated[Optional[str], typer.Option("--url", metavar="URL", help="Another URL.")] = None,
    events: EventsOption = None, description: DescriptionOption = None,
    enabled: Annotated[
        Optional[bool],
        typer.Option("--enable/--disable", help="Disabled gives up on what is on its way; enabled forgives failures."),
    ] = None,
    operator: OperatorOption = False, output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """Change, disable or enable a webhook."""
    with connected(operator=operator) as client:
        changed = client.webhooks.update(
            webhook, url=url, events=events or None, description=description, enabled=enabled
        )
        show(changed, output)


@app.command("rm")
def remove(webhook: WebhookArgument, yes: YesOption = False, operator: OperatorOption = False) -> None:
    """Remove a webhook and give up on what is on its way to it."""
    confirmed(f"Remove {webhook}?", yes)
    with connected(operator=operator) as client:
        client.webhooks.delete(webhook)
        say(webhook)


@app.command("rotate")
def rotate(
    webhook: WebhookArgument,
    grace: Annotated[
        Optional[int], typer.Option("--grace", metavar="SECONDS", min=0, help="How long the old secret signs too.")
    ] = None,
    operator: OperatorOption = False, output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """Replace the signing secret. The new one is written once, to stdout."""
    with connected(operator=operator) as client:
        _secret(client.webhooks.rotate(webhook, grace_seconds=grace), output)


@app.command("test")
def send_test(webhook: WebhookArgument, operator: OperatorOption = False, output: OutputOption = Format.table) -> None:
    """Send a test event, and tell its id; `webhook deliveries` shows what became of it."""
    with connected(operator=operator) as client:
        _on_its_way(client.webhooks.test(webhook), output)


@app.command("replay")
def replay(
    webhook: WebhookArgument,
    since: Annotated[str, typer.Option("--from", metavar="TIME", help="Such as 2030-01-01T00:00:00Z.")],
    to: Annotated[Optional[str], typer.Option("--to", metavar="TIME", help="Now without it.")] = None,
    operator: OperatorOption = False, output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """Send the events of a stretch of time again, also those that were delivered."""
    with connected(operator=operator) as client:
        show(client.webhooks.replay(webhook, since, to), output)


@app.command("deliveries")
def deliveries(
    webhook: WebhookArgument,
    status: Annotated[
        Optional[list[str]], typer.Option("--status", help="pending, delivered or failed; repeatable.")
    ] = None,
    limit: LimitOption = None, operator: OperatorOption = False, output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """List what was sent or waits for another try, newest events first."""
    with connected(operator=operator) as client:
        show_list(client.webhooks.deliveries(webhook, status=status, at_most=limit), output, DELIVERIES)


@app.command("redeliver")
def redeliver(
    webhook: WebhookArgument, event: EventArgument, operator: OperatorOption = False,
    output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """Send one event again, whatever became of it."""
    with connected(operator=operator) as client:
        _on_its_way(client.webhooks.redeliver(webhook, event), output)


def _on_its_way(delivery: Any, output: Format) -> None:
    if output is Format.table:
        say(delivery.id)
    else:
        show(delivery, output)
