"""The commands, put together; each group is a module of its own.

Modules of commands do without `from __future__ import annotations`: on Python 3.9 Typer would not see their options.
"""

from typing import Annotated, Optional

import typer

from .._version import VERSION
from . import audit, execution, kept, logins, pools, rules, sandboxes, service, spending, tenancy, webhooks
from .session import SESSION

app = typer.Typer(
    name="differently",
    help="Sandboxes for AI agents, on any backend that a Differently server has.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"differently {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    login: Annotated[
        Optional[str], typer.Option("--login", "-l", metavar="NAME", help="The login to use; see `differently login`.")
    ] = None,
    url: Annotated[
        Optional[str],
        typer.Option("--url", metavar="URL", help="The server to use, with the key in DIFFERENTLY_API_KEY."),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Tell the version of this program.")
    ] = False,
) -> None:
    SESSION.login = login
    SESSION.url = url


for group in (
    sandboxes.app, execution.jobs, kept.snapshots, kept.ports, rules.secrets, rules.templates, rules.profiles,
    spending.budgets, audit.app, webhooks.app, pools.app, pools.credentials, rules.policies,
    tenancy.orgs, tenancy.projects, tenancy.quotas, tenancy.keys,
):  # fmt: skip
    app.add_typer(group)
for module in (logins, execution, service, spending):
    module.add_to(app)
execution.add_to_sandbox(sandboxes.app)
