"""What would make a deployment fail, told before it begins: it reads, and changes nothing.

    python -m differently_infra.preflight [--config deployment.toml]

Each finding says what to do. The command fails when one of them stops a deployment.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from differently_core.contract import EnvironmentVariable, StoredSecret, Vaulted, parse_reference
from differently_core.errors import DifferentlyError
from differently_core.model.secret import Secret

from .admin import Installation, Refused
from .configuration import FILE, Configuration, Unusable, read
from .functions import API_FUNCTIONS, WORK_FUNCTIONS
from .names import Names
from .packages import Unbuilt, check_image

BOOTSTRAP_PARAMETER: Final = "/cdk-bootstrap/hnb659fds/version"
BOOTSTRAP_VERSION_MIN: Final = 6
"""What the templates ask for themselves, as a rule in each."""
CONCURRENCY_MIN: Final = 100
"""Below that a handful of held commands leaves nothing for anybody else. New accounts begin with 10."""
CODE_BYTES: Final = 300 * 1024 * 1024
"""Of functions and layers of all stacks, zipped, with the versions of an update beside them."""
VPCS_DEFAULT, ADDRESSES_DEFAULT = 5, 5
"""Of an account in a Region, unless raised."""
MICROVM_REGIONS: Final = (
    "us-east-1", "us-east-2", "us-west-2", "eu-west-1", "eu-central-1", "eu-north-1", "ap-northeast-1", "ap-south-1",
    "ap-southeast-1", "ap-southeast-2",
)  # fmt: skip
"""Reported by others who use them, not confirmed by us."""
TAG: Final = "differently:installation"
Client = Callable[[str], Any]
HasSecret = Callable[[str], bool | None]
"""Whether the installation keeps a secret of that name; None when there is no installation yet."""


class Severity(StrEnum):
    OK = "ok"
    WARNING = "warning"
    STOP = "stop"


@dataclass(frozen=True)
class Finding:
    severity: Severity
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.severity:8}{self.what}" + (f"\n        {self.remedy}" if self.remedy else "")


def ok(what: str) -> Finding:
    return Finding(Severity.OK, what)


def warning(what: str, remedy: str) -> Finding:
    return Finding(Severity.WARNING, what, remedy)


def stop(what: str, remedy: str) -> Finding:
    return Finding(Severity.STOP, what, remedy)


class Preflight:
    """`region` is the one that stacks would go to."""

    def __init__(self, configuration: Configuration, client: Client, region: str | None, has_secret: HasSecret) -> None:
        self._configuration = configuration
        self._client = client
        self._region = region
        self._has_secret = has_secret
        self._names = Names(configuration.name, configuration.prefix)
        self._stacks: dict[str, str] = {}

    def findings(self) -> Iterator[Finding]:
        if not self._region:
            yield stop("No Region is set.", "export AWS_REGION=… to say where the stacks go.")
            return
        for finding in self._asked("who calls", self._identity):
            yield finding
            if finding.severity is Severity.STOP:
                return
        for what, check in (
            ("the CDK's bootstrap", self._bootstrap),
            ("stacks", self._existing),
            ("log groups", self._leftovers),
            ("the quotas of Lambda", self._lambda),
            ("the account's setting for API Gateway logs", self._gateway),
            ("other services", self._services),
            ("the quotas of VPCs", self._network),
            ("Lambda MicroVMs", self._microvms),
            ("credentials of declared pools", self._credentials),
        ):
            yield from self._asked(what, check)

    def _asked(self, what: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
        """What AWS does not answer is a finding too, and keeps nothing else from being looked at."""
        try:
            yield from check()
        except ClientError as error:
            code = error.response["Error"]["Code"]
            yield warning(
                f"{what}: AWS refused to tell ({code}).",
                "Let your role read it, or look yourself; a deployment may fail there.",
            )
        except BotoCoreError as error:
            yield warning(
                f"{what}: AWS was not reached ({type(error).__name__}).",
                f"If the service is not offered in {self._region}, choose another Region.",
            )

    def _identity(self) -> Iterator[Finding]:
        try:
            caller = self._client("sts").get_caller_identity()
        except (BotoCoreError, ClientError) as error:
            code = error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
            yield stop(
                f"Your credentials are not taken: {code}.",
                "Sign in (aws sso login), or set AWS_PROFILE to a profile that may deploy.",
            )
            return
        yield ok(f"account {caller['Account']}, Region {self._region}, as {caller['Arn']}")
        if caller["Arn"].endswith(":root"):
            yield warning("You are the account's root user.", "Deploy as a role; keep root's keys out of shells.")

    def _bootstrap(self) -> Iterator[Finding]:
        try:
            found = self._client("ssm").get_parameter(Name=BOOTSTRAP_PARAMETER)["Parameter"]["Value"]
        except ClientError as error:
            if error.response["Error"]["Code"] != "ParameterNotFound":
                raise
            yield stop("The CDK is not bootstrapped in this account and Region.", "make cloud-bootstrap")
            return
        if int(found) < BOOTSTRAP_VERSION_MIN:
            yield stop(f"The CDK's bootstrap is of version {found}, older than {BOOTSTRAP_VERSION_MIN}.",
                       "make cloud-bootstrap brings it up to date.")  # fmt: skip
        else:
            yield ok(f"the CDK's bootstrap, version {found}")

    def _existing(self) -> Iterator[Finding]:
        client = self._client("cloudformation")
        mine = f"{self._configuration.prefix}-"
        for page in client.get_paginator("describe_stacks").paginate():
            for stack in page["Stacks"]:
                if stack["StackName"].startswith(mine):
                    self._stacks[stack["StackName"]] = stack["StackStatus"]
                    yield from self._stack(stack)
        yield ok(f"{len(self._stacks)} stacks of {self._configuration.name} are there")

    def _stack(self, stack: Any) -> Iterator[Finding]:
        name, status = stack["StackName"], stack["StackStatus"]
        tags = {tag["Key"]: tag["Value"] for tag in stack.get("Tags", [])}
        if tags.get(TAG) != self._configuration.name:
            yield stop(f"{name} is not of this installation: it lacks the tag {TAG}={self._configuration.name}.",
                       "Choose another `name` in the configuration.")  # fmt: skip
        elif status.endswith("_IN_PROGRESS"):
            yield stop(f"{name} is {status}.", "Wait until whoever changes it has finished.")
        elif status in ("ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED"):
            yield stop(f"{name} is {status}: it cannot be updated.",
                       f"aws cloudformation delete-stack --stack-name {name}, then deploy again.")  # fmt: skip
        elif status == "UPDATE_ROLLBACK_FAILED":
            yield stop(f"{name} is {status}.",
                       f"aws cloudformation continue-update-rollback --stack-name {name}")  # fmt: skip

    def _leftovers(self) -> Iterator[Finding]:
        """A log group outlives a stack that was deleted by hand, and a create of the same name then fails."""
        client = self._client("logs")
        for part, functions in (("Workers", WORK_FUNCTIONS), ("Api", API_FUNCTIONS)):
            if self._names.stack(part) in self._stacks:
                continue
            for function in functions:
                name = f"/aws/lambda/{self._names.function(function)}"
                found = client.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
                if any(group["logGroupName"] == name for group in found):
                    yield stop(f"The log group {name} is there, and its stack is not.",
                               f"aws logs delete-log-group --log-group-name {name}")  # fmt: skip

    def _lambda(self) -> Iterator[Finding]:
        settings = self._client("lambda").get_account_settings()
        limit = settings["AccountLimit"]["ConcurrentExecutions"]
        if limit < CONCURRENCY_MIN:
            yield warning(
                f"Lambda runs {limit} functions at once in this account; each held command, stream and wait is one.",
                "aws service-quotas request-service-quota-increase --service-code lambda --quota-code L-B99A9384 "
                "--desired-value 1000",
            )
        else:
            yield ok(f"Lambda runs {limit} functions at once")
        free = settings["AccountLimit"]["TotalCodeSize"] - settings["AccountUsage"]["TotalCodeSize"]
        if free < CODE_BYTES:
            yield stop(
                f"Lambda has room for {free // 2**20} MiB of code, and {CODE_BYTES // 2**20} may be needed.",
                "Delete old versions of layers and functions, or raise the quota (L-2ACBD22F).",
            )

    def _gateway(self) -> Iterator[Finding]:
        role = self._client("apigateway").get_account().get("cloudwatchRoleArn")
        deployed = self._names.stack("Api") in self._stacks
        if self._configuration.api.access_logs and role and not deployed:
            yield warning(
                f"API Gateway writes logs as {role} in this account; this deployment would put its own role there.",
                "Set api.accessLogs = false, or make sure that nobody else needs that role.",
            )

    def _services(self) -> Iterator[Finding]:
        for what, call in (
            ("dynamodb", lambda client: client.list_tables(Limit=1)),
            ("stepfunctions", lambda client: client.list_state_machines(maxResults=1)),
            ("sqs", lambda client: client.list_queues(MaxResults=1)),
            ("kms", lambda client: client.list_keys(Limit=1)),
            ("secretsmanager", lambda client: client.list_secrets(MaxResults=1)),
            ("events", lambda client: client.list_rules(Limit=1)),
        ):
            yield from self._asked(what, lambda what=what, call=call: self._answers(what, call))  # type: ignore[misc]

    def _answers(self, what: str, call: Callable[[Any], Any]) -> Iterator[Finding]:
        call(self._client(what))
        yield ok(f"{what} answers")

    def _network(self) -> Iterator[Finding]:
        chosen = self._configuration.network
        if not chosen.vpc or self._names.stack("Network") in self._stacks:
            return
        ec2 = self._client("ec2")
        vpcs, addresses = len(ec2.describe_vpcs()["Vpcs"]), len(ec2.describe_addresses()["Addresses"])
        if vpcs >= VPCS_DEFAULT:
            yield warning(f"There are {vpcs} VPCs, and an account has {VPCS_DEFAULT} unless that was raised.",
                          "Raise the quota (L-F678F1CE), or delete one.")  # fmt: skip
        if addresses + chosen.nat_gateways > ADDRESSES_DEFAULT:
            yield warning(
                f"{addresses} elastic addresses are taken, {chosen.nat_gateways} more are needed, and an account has "
                f"{ADDRESSES_DEFAULT} unless that was raised.",
                "Raise the quota (L-0263D0A3), or lower network.natGateways.",
            )

    def _microvms(self) -> Iterator[Finding]:
        chosen = self._configuration.microvms
        if not chosen.enabled:
            return
        try:
            check_image(chosen)
        except Unbuilt as error:
            yield stop(str(error), "Put it there, or set microvms.enabled = false.")
        if self._region not in MICROVM_REGIONS:
            yield warning(f"Lambda MicroVMs are not known to be offered in {self._region}.",
                          f"Known ones: {', '.join(MICROVM_REGIONS)}.")  # fmt: skip

    def _credentials(self) -> Iterator[Finding]:
        for name, pool in self._configuration.pools.items():
            if pool.credential is not None:
                reference = parse_reference(pool.credential)
                yield from self._asked(f"the credential of pool {name}", lambda n=name, r=reference: self._one(n, r))  # type: ignore[misc]

    def _one(self, pool: str, reference: StoredSecret | EnvironmentVariable | Vaulted) -> Iterator[Finding]:
        if isinstance(reference, EnvironmentVariable):
            yield stop(f"Pool {pool} takes its credential from a variable, and functions have none.",
                       'Keep it as a secret (PUT /v1/admin/secrets/NAME): credential = "secret:NAME".')  # fmt: skip
        elif isinstance(reference, StoredSecret):
            yield from self._stored(pool, reference.name)
        else:
            yield from self._vaulted(pool, reference)

    def _stored(self, pool: str, secret: str) -> Iterator[Finding]:
        there = self._has_secret(secret)
        if there:
            yield ok(f"the secret {secret!r} of pool {pool}")
        else:
            yet = "There is no installation yet" if there is None else f"There is no secret {secret!r}"
            yield warning(
                f"{yet}, so pool {pool} cannot be made by this deployment.",
                f"Deploy, PUT /v1/admin/secrets/{secret}, then run `python -m differently_infra.admin apply`.",
            )

    def _vaulted(self, pool: str, reference: Vaulted) -> Iterator[Finding]:
        if reference.arn not in self._configuration.adapters.credential_arns:
            yield stop(f"Pool {pool} names {reference.arn}, which functions may not read.",
                       "Add it to adapters.credentialArns.")  # fmt: skip
            return
        client = self._client(reference.service)
        try:
            if reference.service == "secretsmanager":
                client.describe_secret(SecretId=reference.arn)
            else:
                client.get_parameter(Name=reference.arn)
        except ClientError as error:
            if error.response["Error"]["Code"] not in ("ResourceNotFoundException", "ParameterNotFound"):
                raise
            yield stop(f"{reference.arn}, the credential of pool {pool}, does not exist.",
                       "Make it there, or name another one.")  # fmt: skip
            return
        yield ok(f"the credential of pool {pool}")


def has_secret(configuration: Configuration) -> HasSecret:
    """Looked up in what is deployed; with credentials that may not read there, as if nothing were."""

    def look(name: str) -> bool | None:
        try:
            core = Installation(configuration).wiring().core
            return core.store.get(Secret, Secret.key_of(name)) is not None
        except (Refused, DifferentlyError):
            return None

    return look


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m differently_infra.preflight")
    parser.add_argument("--config", type=Path, help=f"the configuration; {FILE} in this folder if there is one")
    path = parser.parse_args(arguments).config or (Path(FILE) if Path(FILE).exists() else None)
    try:
        configuration = read(path)
    except Unusable as error:
        print(f"preflight: {error}", file=sys.stderr)
        return 1
    session = botocore.session.get_session()
    bounds = Config(connect_timeout=3, read_timeout=10, retries={"total_max_attempts": 2})
    checks = Preflight(
        configuration,
        lambda service: session.create_client(service, config=bounds),
        session.get_config_variable("region"),
        has_secret(configuration),
    )
    stopped = False
    for finding in checks.findings():
        print(finding, flush=True)
        stopped |= finding.severity is Severity.STOP
    print("A deployment would fail: see above." if stopped else "Nothing stands in the way of `make deploy`.")
    return int(stopped)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
