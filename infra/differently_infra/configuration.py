"""What an operator may choose about a deployment: one TOML file, checked as a whole before anything is synthesized.

Every key has a default, so an empty file, or none, is a complete installation. The written reference of the keys is
made from these models.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from differently_api.declared import Declarations
from differently_core.model.pool import POOL_NAME_PATTERN

FILE: Final = "deployment.toml"
LOG_DAYS = Literal[1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 3653]
"""What CloudWatch can keep a log for."""


class Unusable(Exception):
    """The configuration cannot be used; the text names the key and what it may be."""


class Section(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True
    )


class Data(Section):
    """Ceilings for the on-demand tables and each of their indexes: a bound on the bill, not a reservation."""

    max_read_units: Annotated[int, Field(ge=1)] | None = None
    """Read request units a second. Left out, DynamoDB's own account limits are the only ones."""
    max_write_units: Annotated[int, Field(ge=1)] | None = None
    """Write request units a second."""


class Api(Section):
    """The REST API."""

    streaming: bool = True
    """Answers of commands, files and waits leave while they are made, for up to 15 minutes. Off where a Region's API
    Gateway cannot stream: then they are sent whole, what takes longer than 29 seconds is cut, and what is larger than
    4 MiB is refused."""
    allowed_origins: tuple[Annotated[str, Field(pattern=r"^https://[a-z0-9.-]+(:\d+)?$")], ...] = ()
    """Web origins whose pages may read answers in a browser."""
    requests_per_second: Annotated[int, Field(ge=1, le=10_000)] = 1_000
    """Of all callers together; above it the gateway answers 429."""
    burst: Annotated[int, Field(ge=1, le=5_000)] = 2_000
    """Requests that may come at once beyond that."""
    access_logs: bool = True
    """One line for each request that reached the gateway. It needs the account's setting for API Gateway logs, which
    this deployment then makes: one for each account and Region."""


class Network(Section):
    """Where data, worker and reconcile run."""

    vpc: bool = False
    """In a VPC of their own, for backends that have no public address. It costs money while nothing runs: see
    `make price`."""
    cidr: Annotated[str, Field(pattern=r"^10\.\d{1,3}\.0\.0/16$")] = "10.80.0.0/16"
    """Addresses of that VPC."""
    nat_gateways: Annotated[int, Field(ge=0, le=3)] = 1
    """Ways out to the internet; with none only what is inside the VPC, DynamoDB and AWS's own endpoints is reached."""


class Adapters(Section):
    """Which kinds of backends are used, and what their pools may read."""

    minimum_level: Literal["live", "real server", "vendor SDK", "fake"] = "fake"
    """Kinds that were tested against less are refused; a pool of such a kind stays listed and takes nothing."""
    credential_arns: tuple[
        Annotated[
            str,
            Field(
                pattern=r"^arn:aws[a-z-]*:(secretsmanager|ssm):[a-z0-9-]+:[0-9]{12}:(secret:|parameter/)[\w/+=.@-]+$"
            ),
        ],
        ...,
    ] = ()
    """Secrets of Secrets Manager and parameters of SSM that pools may name as their credential; no others are read."""


class Retention(Section):
    """How long what does not run is kept. Policies may say otherwise, within the maximum."""

    resting_days: Annotated[int, Field(ge=1, le=366)] = 30
    """Stopped and paused sandboxes, where no policy says it."""
    snapshot_days: Annotated[int, Field(ge=1, le=366)] = 30
    """Snapshots, where neither their caller nor a policy says it."""
    maximum_days: Annotated[int, Field(ge=1, le=366)] = 366
    """Longer nothing is kept, whoever says so."""

    def seconds(self) -> dict[str, int]:
        """As functions are told."""
        days = {
            "RETENTION_SECONDS": self.resting_days, "SNAPSHOT_RETENTION_SECONDS": self.snapshot_days,
            "RETENTION_SECONDS_MAX": self.maximum_days,
        }  # fmt: skip
        return {name: number * 86_400 for name, number in days.items()}


class Microvms(Section):
    """Sandboxes in this account without a cluster: an image of AWS Lambda MicroVMs, and the pool that runs it."""

    enabled: bool = False
    """Build the image, declare the pool, and let functions use it. Off by default: which Regions have the service is
    reported and not confirmed, the image needs a base and an agent that you bring, and nothing of it was run against
    AWS by us."""
    pool: Annotated[str, Field(pattern=POOL_NAME_PATTERN)] = "microvms"
    """The pool's name."""
    folder: str = "microvm-image"
    """What the image is built from: `Dockerfile`, `agent.py` and `execd`, OpenSandbox's agent for arm64. Begin with a
    copy of examples/lambda-microvm-image."""
    base_image_arn: Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:lambda:\S+$")] | None = None
    """AWS's own base image; `aws lambda-microvms list-managed-microvm-images` lists them."""
    base_image_version: Annotated[str, Field(pattern=r"^\S+$")] | None = None
    """A version of it."""
    memory_mib: Literal[512, 1024, 2048, 4096, 8192] = 2048
    """Of every sandbox: an image has one size."""
    max_concurrency: Annotated[int, Field(ge=1, le=100_000)] = 20
    """Sandboxes at once."""


class Audit(Section):
    """The roots of the audit log, which are kept in a bucket with Object Lock."""

    roots_days: Annotated[int, Field(ge=1, le=36_500)] = 400
    """So long nobody can remove a root. It holds for roots that are written from then on."""
    compliance: bool = False
    """Not even the account's root user can remove a root, or shorten its time: nobody can take this back. Off, who has
    `s3:BypassGovernanceRetention` can; no function has."""


class Functions(Section):
    """The Lambda functions."""

    memory_mib: Annotated[int, Field(ge=256, le=3_008)] = 1_024
    """Of control, admin, worker, dispatch, reconcile and tick. CPU grows with it: less is slower and hardly cheaper."""
    data_memory_mib: Annotated[int, Field(ge=256, le=3_008)] = 512
    """Of data, which mostly waits for a backend."""
    authorizer_memory_mib: Annotated[int, Field(ge=256, le=3_008)] = 512
    """Of the authorizer."""
    dispatch_concurrency: Annotated[int, Field(ge=2, le=20)] = 2
    """Readers of the dispatch queue at once. More only collide on the same counters."""
    deliver_concurrency: Annotated[int, Field(ge=2, le=1_000)] = 20
    """Webhooks that are sent to at once. Each has one run at a time, so a slow receiver holds one of these at most."""


class Logs(Section):
    """What is written down outside of the tables."""

    days: LOG_DAYS = 30
    """How long log groups keep lines."""
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """The least severe lines that are written."""
    metrics: bool = True
    """Read metrics out of log lines; each series costs money in a month in which it appears."""


class Alarms(Section):
    """Who is told when something is wrong."""

    enabled: bool = True
    """Make alarms, a topic for them, the dashboard and the queries that the runbooks name."""
    email: Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")] | None = None
    """An address that gets them; AWS asks it for confirmation first."""
    runbooks: Annotated[str, Field(pattern=r"^https://\S+$")] | None = None
    """Where docs/how-to/runbooks.md is published; alarms link to its sections."""


class Waf(Section):
    """AWS WAF in front of the API."""

    enabled: bool = False
    """Filter by reputation and rate. Never by content: commands look like attacks."""
    requests_per_five_minutes: Annotated[int, Field(ge=10, le=2_000_000)] = 10_000
    """From one address; above it the address is refused for a while."""


class Configuration(Declarations, Section):
    """A deployment of Differently."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{1,19}$")] = "differently"
    """Begins the name of every function, queue, role and stack, so that two installations can share an account."""
    tags: Mapping[Annotated[str, Field(pattern=r"^[\w .:/=+@-]{1,128}$")], str] = {}
    """Put on everything that can be tagged."""
    keep_data: bool = True
    """Tables and keys outlive the stacks and refuse to be deleted. Off, a destroy destroys what they hold: for
    installations that are thrown away."""
    data: Data = Data()
    api: Api = Api()
    network: Network = Network()
    adapters: Adapters = Adapters()
    retention: Retention = Retention()
    audit: Audit = Audit()
    functions: Functions = Functions()
    logs: Logs = Logs()
    alarms: Alarms = Alarms()
    waf: Waf = Waf()
    microvms: Microvms = Microvms()

    @model_validator(mode="after")
    def _consistent(self) -> Configuration:
        if self.api.burst < self.api.requests_per_second // 10:
            raise ValueError("api.burst is less than a tenth of api.requestsPerSecond: steady traffic would be refused")
        if self.microvms.enabled and not (self.microvms.base_image_arn and self.microvms.base_image_version):
            raise ValueError(
                "microvms.baseImageArn and microvms.baseImageVersion are needed where microvms are enabled"
            )
        if self.microvms.enabled and self.microvms.pool in self.pools:
            raise ValueError(f"pools.{self.microvms.pool} is the pool of microvms already; give one another name")
        longest = self.retention.maximum_days
        for name in ("resting_days", "snapshot_days"):
            if getattr(self.retention, name) > longest:
                raise ValueError(f"retention.{to_camel(name)} is longer than retention.maximumDays, {longest}")
        return self

    @property
    def prefix(self) -> str:
        """Of stack names: `my-sandboxes` -> `MySandboxes`."""
        return "".join(part.capitalize() for part in self.name.split("-"))


def read(path: Path | None) -> Configuration:
    """Raises `Unusable`. None is the default of everything."""
    if path is None:
        return Configuration()
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Unusable(f"{path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Unusable(f"{path} is not TOML: {error}.") from None
    return parse(given, str(path))


def parse(given: Mapping[str, Any], where: str) -> Configuration:
    """Raises `Unusable` naming every wrong key at once."""
    try:
        return Configuration.model_validate(given)
    except ValidationError as error:
        wrong = "; ".join(_explained(entry) for entry in error.errors(include_url=False))
    raise Unusable(f"{where}: {wrong}.")


def _explained(entry: Any) -> str:
    key = ".".join(str(part) for part in entry["loc"])
    if entry["type"] == "extra_forbidden":
        return f"there is no key {key}"
    said = str(entry["msg"]).removeprefix("Value error, ")
    return f"{key}: {said}" if key else said


def sections() -> Iterator[tuple[str, type[Section]]]:
    """The top level, under the empty name, and each table of the file."""
    yield "", Configuration
    for name, field in Configuration.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield to_camel(name), field.annotation


_BREAK: Final = re.compile(r"\s*\n\s*")


def described(section: type[Section]) -> Iterator[tuple[str, Any, str]]:
    """Each key of a table that is no table itself, its default, and what it is."""
    for name, field in section.model_fields.items():
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, Section)):
            yield to_camel(name), field.default, _BREAK.sub(" ", field.description or "")
