"""What an operator does to an installation from outside, with the account's own credentials.

    python -m differently_infra.admin bootstrap      the first operator key, once
    python -m differently_infra.admin url            where the API is
    python -m differently_infra.admin installation   the id that this installation stamps on every instance
    python -m differently_infra.admin diff           where the installation is not as its configuration declares
    python -m differently_infra.admin apply          make it so: what `make deploy` does last

`--name` says which installation, where an account holds several; `--config` a file that says it too. What it needs it
reads from the stacks' outputs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import botocore.session
from botocore.exceptions import BotoCoreError, ClientError

from differently_api.declared import DeclaredPool
from differently_api.routes.pools import CreatePool
from differently_aws.wiring import Wiring, wire
from differently_core.errors import DifferentlyError
from differently_core.model.pool import Trust
from differently_core.model.tenancy import OPERATOR_ORG, ApiKeyEntry
from differently_core.operations import tenants
from differently_core.operations.declaring import Declared, Verdict, reconcile
from differently_core.operations.keys import NewKey

from .configuration import FILE, Configuration, Microvms, Unusable, read
from .names import Names

OUTPUTS: Final[Mapping[str, tuple[str, str]]] = {
    "CONFIG_TABLE": ("Data", "ConfigTableName"),
    "STATE_TABLE": ("Data", "StateTableName"),
    "LOG_TABLE": ("Data", "LogTableName"),
    "SECRETS_KEY": ("Data", "SecretsKeyArn"),
    "PEPPER_SECRET": ("Secrets", "PepperSecretArn"),
}
"""Environment variable of a function to the stack and output that it comes from."""


class Refused(Exception):
    """It cannot be done; the text says why, and what to do."""


class Installation:
    """One deployed installation, by its name in the configuration."""

    def __init__(self, configuration: Configuration) -> None:
        self._level = configuration.adapters.minimum_level
        self._names = Names(configuration.name, configuration.prefix)
        self._session = botocore.session.get_session()
        self._stacks: dict[str, Mapping[str, str]] = {}

    def output(self, stack: str, key: str) -> str:
        """Raises `Refused` when the stack is not deployed or does not tell."""
        if stack not in self._stacks:
            self._stacks[stack] = self._read(self._names.stack(stack))
        found = self._stacks[stack].get(key)
        if found is None:
            raise Refused(f"{self._names.stack(stack)} has no output {key}: it was deployed by another version.")
        return found

    def wiring(self) -> Wiring:
        """As the functions have it."""
        told = {variable: self.output(*place) for variable, place in OUTPUTS.items()}
        region = self._session.get_config_variable("region")
        if not region:
            raise Refused("No Region is set: AWS_REGION names the one that the stacks are in.")
        more = {"AWS_REGION": region, "DIFFERENTLY_VERSION": version("differently-server"), "LOG_LEVEL": "WARNING"}
        more["ADAPTERS_MINIMUM_LEVEL"] = self._level
        endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
        return wire("operator", {**told, **more, "AWS_ENDPOINT_URL": endpoint})

    def _read(self, stack: str) -> Mapping[str, str]:
        try:
            client = self._session.create_client("cloudformation")
            (found,) = client.describe_stacks(StackName=stack)["Stacks"]
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code == "ValidationError":
                raise Refused(f"There is no stack {stack} in this account and Region: deploy it first.") from None
            raise Refused(f"The stack {stack} cannot be read: {code}.") from None
        except BotoCoreError as error:
            raise Refused(f"AWS cannot be asked: {type(error).__name__}; check credentials and Region.") from None
        return {entry["OutputKey"]: entry["OutputValue"] for entry in found.get("Outputs", [])}


def bootstrap(wiring: Wiring) -> NewKey:
    """Make what every installation has, and the first operator key. Raises `Refused` when there is one already."""
    tenants.bootstrap(wiring.core)
    if has_operator_key(wiring):
        raise Refused(
            "This installation has an operator key already. Make further ones with it: POST /v1/api-keys. If it is "
            "lost, --another makes one more; revoke the lost one then."
        )
    return tenants.first_operator_key(wiring.core, wiring.peppers)


def has_operator_key(wiring: Wiring) -> bool:
    table, pk, _ = ApiKeyEntry.key_of(OPERATOR_ORG, "")  # type: ignore[arg-type]  # the partition alone is wanted
    return bool(wiring.core.store.query(table, pk, limit=1).rows)


def main(arguments: Sequence[str]) -> int:
    given = _parser().parse_args(arguments)
    try:
        return int(given.run(given) or 0)
    except (Refused, Unusable) as refusal:
        print(f"admin: {refusal}", file=sys.stderr)
    except DifferentlyError as error:
        print(f"admin: {error.message}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m differently_infra.admin")
    parser.add_argument("--config", type=Path, help=f"the configuration; {FILE} in this folder if there is one")
    parser.add_argument("--name", help="the installation's name, if it is another than the configuration's")
    commands = parser.add_subparsers(required=True)
    first = commands.add_parser("bootstrap", help="make the first operator key and print it")
    first.add_argument("--another", action="store_true", help="make one more although there is one")
    first.set_defaults(run=_bootstrap)
    commands.add_parser("url", help="print where the API is").set_defaults(run=_url)
    commands.add_parser("installation", help="print the installation's id").set_defaults(run=_installation)
    applied = commands.add_parser("apply", help="make pools, templates, policies and quotas what the file declares")
    applied.add_argument("--take-over", action="store_true", help="let the file win over what was made by the API")
    applied.set_defaults(run=_apply, dry_run=False)
    commands.add_parser("diff", help="tell what apply would do").set_defaults(run=_apply, dry_run=True, take_over=False)
    return parser


def configuration(given: Any) -> Configuration:
    """The one that was named, or lies here, or the default; under another name if one was given."""
    found = read(given.config or (Path(FILE) if Path(FILE).exists() else None))
    return found.model_copy(update={"name": given.name}) if given.name else found


def _apply(given: Any) -> int:
    chosen = configuration(given)
    installation = Installation(chosen)
    core = installation.wiring().core
    tenants.bootstrap(core)
    outcomes = []
    for outcome in reconcile(core, things(installation, chosen), take_over=given.take_over, dry_run=given.dry_run):
        # At once, so that whatever ends this run has told what was done.
        print(outcome, flush=True)
        outcomes.append(outcome)
    if given.dry_run:
        return int(any(outcome.verdict not in (Verdict.SAME, Verdict.TAKE) for outcome in outcomes))
    return int(not all(outcome.settled for outcome in outcomes))


def things(installation: Installation, chosen: Configuration) -> Iterator[Declared]:
    """What the file declares, and the pools that come with stacks."""
    yield from chosen.things()
    if chosen.microvms.enabled:
        yield microvm_pool(chosen.microvms, installation.output("Microvms", "ImageArn"))


def microvm_pool(chosen: Microvms, image: str) -> DeclaredPool:
    body = CreatePool(
        name=chosen.pool, adapter="aws-lambda-microvms", trust=Trust.PRIVATE, max_concurrency=chosen.max_concurrency,
        config={"imageArn": image, "memoryMiB": chosen.memory_mib},
    )  # fmt: skip
    return DeclaredPool(chosen.pool, body)


def _bootstrap(given: Any) -> None:
    wiring = Installation(configuration(given)).wiring()
    made = tenants.first_operator_key(wiring.core, wiring.peppers) if given.another else bootstrap(wiring)
    print(made.token)
    print("This is the only time that the key is shown.", file=sys.stderr)


def _url(given: Any) -> None:
    print(Installation(configuration(given)).output("Api", "ApiUrl").rstrip("/"))


def _installation(given: Any) -> None:
    print(Installation(configuration(given)).wiring().core.catalog.installation().id)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
