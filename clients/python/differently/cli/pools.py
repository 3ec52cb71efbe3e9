"""Pools and their credentials: for operators."""

from typing import Annotated, Any, Optional

import typer

from .forms import config_of, rows
from .given import read, secret_values
from .output import Format, say, show, show_list
from .session import LimitOption, OutputOption, YesOption, confirmed, connected

app = typer.Typer(name="pool", help="Backends that sandboxes run on (operators).", no_args_is_help=True)
credentials = typer.Typer(name="credential", help="Credentials of pools' providers (operators).", no_args_is_help=True)
PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="The pool.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Its name.")]
SetOption = Annotated[
    Optional[list[str]], typer.Option("--set", metavar="FIELD=VALUE", help="A field of its kind; repeatable.")
]
FileOption = Annotated[
    Optional[typer.FileText], typer.Option("--config", metavar="FILE", help="All fields as JSON; - is standard input.")
]
CredentialOption = Annotated[
    Optional[str], typer.Option("--credential", metavar="WHERE", help="secret:NAME, env:VARIABLE or an ARN.")
]
TrustOption = Annotated[
    Optional[str], typer.Option("--trust", help="private or external, where the kind can be either.")
]
MaxOption = Annotated[Optional[int], typer.Option("--max-concurrency", min=1, help="Sandboxes it holds at once.")]
ForceOption = Annotated[bool, typer.Option("--force", help="End what it holds; at its backend that stays there.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Check everything and change nothing.")]
VerifyOption = Annotated[bool, typer.Option("--verify/--no-verify", help="Try it against the backend first.")]
COLUMNS = (
    ("POOL", "name"), ("KIND", "adapter"), ("STATE", "state"), ("TRUST", "trust"), ("HELD", "held"),
    ("MAX", "maxConcurrency"), ("HEALTHY", "health.healthy"), ("MESSAGE", "health.message"),
)  # fmt: skip


@app.command()
def kinds(
    kind: Annotated[Optional[str], typer.Argument(metavar="KIND", help="One kind, with its fields.")] = None,
    output: OutputOption = Format.table,
) -> None:
    """List the kinds of pools, or what one kind asks for."""
    with connected(operator=True) as client:
        if kind is None:
            show_list(
                client.pools.kinds(),
                output,
                (("KIND", "kind"), ("TRUST", "trust"), ("TESTED", "verification"), ("SUMMARY", "summary")),
            )
            return
        found = client.pools.kind(kind).to_dict()
        if output is not Format.table:
            show(found, output)
            return
        say(f"{found['kind']}: {found['summary']}")
        need = found["credential"]
        say(f"credential: {need['need']}" + (f", fields {', '.join(need['fields'])}" if need["fields"] else ""))
        show_list(
            rows(found["config"]),
            output,
            (
                ("FIELD", "field"),
                ("TYPE", "type"),
                ("REQUIRED", "required"),
                ("DEFAULT", "default"),
                ("ABOUT", "about"),
            ),
        )
        for limit in found["limits"]:
            say(f"- {limit}")


@app.command()
def create(
    name: NameArgument,
    kind: Annotated[str, typer.Option("--kind", help="The kind of backend; see `differently pool kinds`.")],
    max_concurrency: Annotated[int, typer.Option("--max-concurrency", min=1, help="Sandboxes it holds at once.")],
    set_: SetOption = None, config: FileOption = None,
    credential: CredentialOption = None,
    trust: TrustOption = None,
    region: Annotated[Optional[str], typer.Option("--region", help="Where it is.")] = None,
    cpu_hour: Annotated[Optional[float], typer.Option("--cpu-hour", help="Price of a CPU for an hour.")] = None,
    memory_hour: Annotated[Optional[float], typer.Option("--memory-hour", help="Price of a GiB for an hour.")] = None,
    dry_run: DryRunOption = False, output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """Register a pool. What its kind needs and was not given is asked for at a terminal."""
    with connected(operator=True) as client:
        schema = client.pools.kind(kind).config
        costs = {"cpuHour": cpu_hour, "memoryGiBHour": memory_hour}
        given = config_of(schema, set_ or [], read(config) if config else None)
        made = client.pools.create(
            name, kind, max_concurrency=max_concurrency, config=given,
            credential=credential, trust=trust, region=region, dry_run=dry_run,
            cost_model={price: value for price, value in costs.items() if value is not None} or None,
        )  # fmt: skip
        show(made, output)


@app.command()
def update(
    name: PoolArgument,
    max_concurrency: MaxOption = None,
    set_: SetOption = None, config: FileOption = None,
    credential: CredentialOption = None,
    region: Annotated[Optional[str], typer.Option("--region", help="Where it is.")] = None,
    dry_run: DryRunOption = False, verify: VerifyOption = True, output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """Change a pool. Fields that are not given stay as they are."""
    with connected(operator=True) as client:
        named = {"maxConcurrency": max_concurrency, "credential": credential, "region": region}
        changes: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
        if set_ or config:
            now = client.pools.get(name)
            schema = client.pools.kind(now.adapter).config
            changes["config"] = config_of(schema, set_ or [], read(config) if config else now.config, ask=False)
        if not changes:
            raise typer.BadParameter("Nothing to change was given.")
        show(client.pools.update(name, changes, dry_run=dry_run, verify=verify), output)


@app.command("list")
def list_(limit: LimitOption = None, output: OutputOption = Format.table) -> None:
    """List pools and their health."""
    with connected(operator=True) as client:
        show_list(client.pools.list(at_most=limit), output, COLUMNS)


@app.command()
def get(name: PoolArgument, output: OutputOption = Format.table) -> None:
    """Show a pool, with its health, its room, and what waits for it."""
    with connected(operator=True) as client:
        show(client.pools.get(name), output)


@app.command()
def use(
    name: PoolArgument,
    approve_external: Annotated[
        bool, typer.Option("--approve-external", help="It is on somebody else's machines.")
    ] = False,
    output: OutputOption = Format.table,
) -> None:
    """Send everything new to one pool; the others drain."""
    with connected(operator=True) as client:
        show_list(client.pools.use(name, approve_external=approve_external), output, COLUMNS)


@app.command()
def drain(name: PoolArgument) -> None:
    """Send nothing new to a pool; what runs in it goes on."""
    with connected(operator=True) as client:
        say(client.pools.drain(name).state)


@app.command()
def undrain(name: PoolArgument) -> None:
    """Take new work again."""
    with connected(operator=True) as client:
        say(client.pools.undrain(name).state)


@app.command()
def verify(name: PoolArgument) -> None:
    """Try a pool's credential; reads only."""
    with connected(operator=True) as client:
        client.pools.verify(name)
        say("verified")


@app.command()
def discover(name: PoolArgument, output: OutputOption = Format.table) -> None:
    """List what a pool's backend offers for configuration."""
    with connected(operator=True) as client:
        show(client.pools.discover(name), output)


@app.command("rm")
def remove(
    name: PoolArgument, yes: YesOption = False,
    force: ForceOption = False,
) -> None:  # fmt: skip
    """Remove a pool that holds nothing, or by force one that does."""
    confirmed(f"Remove the pool {name!r}" + (" and end everything in it?" if force else "?"), yes)
    with connected(operator=True) as client:
        client.pools.delete(name, force=force)
        say(name)


@app.command()
def reconcile(
    name: Annotated[Optional[str], typer.Argument(metavar="POOL", help="One pool; all without.")] = None,
    output: OutputOption = Format.table,
) -> None:
    """Compare backends with records now."""
    with connected(operator=True) as client:
        show_list(
            client.pools.reconcile(name),
            output,
            (("POOL", "pool"), ("INSTANCES", "instances"), ("ORPHANS", "orphansDeleted"), ("LOST", "lost"),
             ("FOLLOWED", "followed"), ("SUSPECTS", "suspects"), ("SKIPPED", "unownedSkipped"), ("ERROR", "error")),
        )  # fmt: skip


@credentials.command("list")
def list_credentials(limit: LimitOption = None, output: OutputOption = Format.table) -> None:
    """List kept credentials; values are told to nobody."""
    with connected(operator=True) as client:
        show_list(
            client.credentials.list(at_most=limit),
            output,
            (
                ("NAME", "name"),
                ("FIELDS", "fields"),
                ("VERSION", "version"),
                ("POOLS", "pools"),
                ("UPDATED", "updatedAt"),
            ),
        )


@credentials.command("set")
def set_credential(
    name: NameArgument,
    fields: Annotated[list[str], typer.Argument(metavar="FIELD...", help="Names of its fields, such as api_key.")],
    verify: VerifyOption = True, output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """Keep a credential. Values are asked for, or come on standard input, a line each; never as arguments."""
    values = secret_values(fields)
    with connected(operator=True) as client:
        show(client.credentials.put(name, values, verify=verify), output)


@credentials.command("rm")
def remove_credential(
    name: NameArgument, yes: YesOption = False,
    force: Annotated[bool, typer.Option("--force", help="Also while pools use it; they cannot be used then.")] = False,
) -> None:  # fmt: skip
    """Forget a credential."""
    confirmed(f"Forget the credential {name!r}?", yes)
    with connected(operator=True) as client:
        client.credentials.delete(name, force=force)
        say(name)
