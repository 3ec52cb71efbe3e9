"""The shapes of the plugin protocol, version 1, and how they become values of the contract and back.

Fields that version 1 does not have are optional in what is read, and are sent only to a peer that said that it knows
them: a version 1 plugin meets exactly the bodies it was written for.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,  # pydantic wants these below Python 3.12
    cast,
)
from urllib.parse import quote

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, model_validator
from typing_extensions import TypedDict

from differently_core.contract import (
    LABEL_INSTALLATION,
    LABEL_PREFIX,
    LABEL_SANDBOX,
    PROTOCOL_VERSION,
    Capabilities,
    Capacity,
    Catalog,
    CommandResult,
    CreateRequest,
    EgressAction,
    EgressRules,
    Info,
    Instance,
    InstanceState,
    Owner,
    Progress,
    SnapshotInfo,
    SnapshotKind,
    SnapshotRequest,
    SnapshotState,
    Transition,
)
from differently_core.model.exec import EXEC_SECONDS_DEFAULT, EXEC_SECONDS_MAX_JOB, ExecRequest, FileInfo, Job, JobState
from differently_core.model.pool import Trust
from differently_core.model.record import camel
from differently_core.model.resources import Size

BASE: Final = "/adapter/v1"
HEADER_PROTOCOL: Final = "differently-adapter-protocol"
HEADER_INSTALLATION: Final = "differently-installation"
HEADER_SANDBOX: Final = "differently-sandbox-id"
HEADER_DEADLINE: Final = "differently-deadline-seconds"
HEADER_QUIET: Final = "differently-quiet-seconds"
PREFER_BODY: Final = {"prefer": "return=representation"}
NDJSON: Final = "application/x-ndjson"
BYTES: Final = "application/octet-stream"
LABEL_ORG: Final = f"{LABEL_PREFIX}org"
LABEL_PROJECT: Final = f"{LABEL_PREFIX}project"

Count = Annotated[int, Field(ge=0, le=10**12)]
Amount = Annotated[float, Field(ge=0, le=10**9, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=4_096)]
Name = Annotated[str, Field(min_length=1, max_length=2_048)]
Json = dict[str, JsonValue]


class Told(BaseModel):
    """Something the other side says. What we do not know is ignored, and null is the same as left out."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=camel, populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_left_out(cls, value: Any) -> Any:
        return {name: field for name, field in value.items() if field is not None} if isinstance(value, dict) else value

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"  # environments, inputs and addresses are nobody's to print

    def json_(self) -> Json:
        """What goes on the wire: without what is not set."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class ToldInfo(Told):
    kind: Text = ""
    version: Text = ""
    trust: Trust | None = None
    isolation: Text = ""
    protocol: Text = PROTOCOL_VERSION
    description: Text = ""
    idempotent_create: bool = True
    """Version 1 demands it of every plugin."""
    settles_seconds: Seconds | None = None
    create_seconds: Seconds | None = None


class ToldCapabilities(Told):
    features: frozenset[Text] = frozenset()
    max_cpu: Annotated[Amount, Field(alias="maxCPU")] = 0.0
    max_memory_mib: Count = 0
    max_disk_gib: Count = 0
    templates: tuple[Text, ...] = ()
    regions: tuple[Text, ...] = ()
    max_lifetime_seconds: Count = 0
    lease_seconds: Count = 0
    snapshot_stops: bool = False
    idles_by_itself: bool = False

    def value(self, features: frozenset[str]) -> Capabilities:
        return Capabilities(
            features, round(self.max_cpu * 1000), self.max_memory_mib, self.max_disk_gib, self.templates, self.regions,
            self.max_lifetime_seconds, self.lease_seconds, self.snapshot_stops, self.idles_by_itself,
        )  # fmt: skip


class ToldPlugin(Told):
    """The answer to /info. `operations` is the newer part: who lists them also checks the owner on every call."""

    info: ToldInfo
    capabilities: ToldCapabilities
    operations: frozenset[Text] | None = None


class ToldCapacity(Told):
    bounded: bool = False
    free_cpu: Annotated[Amount | None, Field(alias="freeCPU")] = None
    free_memory_mib: Annotated[int | None, Field(alias="freeMemoryMiB")] = None
    largest_free_cpu: Annotated[Amount | None, Field(alias="largestFreeCPU")] = None
    largest_free_memory_mib: Annotated[int | None, Field(alias="largestFreeMemoryMiB")] = None

    def value(self) -> Capacity:
        """Where only one of the two is told, the largest piece and the whole are the same."""
        cpu, memory = self.free_cpu, self.free_memory_mib
        largest_cpu, largest_memory = self.largest_free_cpu, self.largest_free_memory_mib
        return Capacity(
            self.bounded,
            _millis(_first(cpu, largest_cpu)),
            max(0, _first(memory, largest_memory)),
            _millis(_first(largest_cpu, cpu)),
            max(0, _first(largest_memory, memory)),
        )


def _first(*numbers: float | None) -> Any:
    return next((number for number in numbers if number is not None), 0)


def _millis(cpus: float) -> int:
    return round(cpus * 1000)


class InstanceJson(TypedDict):
    """One instance. A list holds thousands, so it stays a dictionary: checked in a fifth of the time of a model."""

    ref: Name
    sandboxId: Text
    installation: NotRequired[Text | None]
    """Version 1 does not say it."""
    state: InstanceState
    region: NotRequired[Text | None]
    message: NotRequired[Text | None]
    prepared: NotRequired[Text | None]
    incarnation: NotRequired[Text | None]
    expiresAt: NotRequired[AwareDatetime | None]
    idle: NotRequired[bool | None]


instance_json: Final = TypeAdapter(InstanceJson).validate_python
instances_json: Final = TypeAdapter(list[InstanceJson]).validate_json


def instance_on_wire(instance: Instance, ref: str) -> Json:
    """What of it is worth telling: version 1's five fields, and the newer ones where they say something."""
    told: Json = {
        "ref": ref, "sandboxId": instance.owner.sandbox, "installation": instance.owner.installation,
        "state": instance.state.value, "message": instance.message,
    }  # fmt: skip
    more: Json = {
        "region": instance.region, "prepared": instance.prepared, "incarnation": instance.incarnation,
        "expiresAt": None if instance.expires_at is None else instance.expires_at.isoformat(), "idle": instance.idle,
    }  # fmt: skip
    return told | {name: value for name, value in more.items() if value}


def is_owned(told: InstanceJson, owner: Owner) -> bool:
    return told["sandboxId"] == owner.sandbox and told.get("installation") in (None, owner.installation)


def instance_value(told: InstanceJson, owner: Owner) -> Instance:
    """The instance as a value, made out of what was told, which is used up.

    Lists hold thousands, and setting nine fields one by one took most of their time. So the checked dictionary becomes
    the instance's own; what was not told is the class's default.
    """
    values = cast("dict[str, Any]", told)
    if None in values.values():
        values = {name: value for name, value in values.items() if value is not None}
    values.pop("installation", None)
    del values["sandboxId"]
    if "expiresAt" in values:
        values["expires_at"] = values.pop("expiresAt")
    values["owner"] = owner
    made = object.__new__(Instance)
    object.__setattr__(made, "__dict__", values)
    return made


class ToldResources(Told):
    cpu: Amount = 0.0
    memory_mib: Count = 0
    disk_gib: Count = 0


class ToldEgress(Told):
    default: EgressAction
    allow: tuple[Text, ...] = ()
    deny: tuple[Text, ...] = ()

    @classmethod
    def of(cls, rules: EgressRules) -> ToldEgress:
        return cls(default=rules.default, allow=rules.allow, deny=rules.deny)

    def value(self) -> EgressRules:
        return EgressRules(self.default, self.allow, self.deny)


class ToldCreate(Told):
    id: Name
    template: Text = ""
    image: Text | None = None
    resources: ToldResources = ToldResources()
    ttl_seconds: Count = 0
    labels: Annotated[dict[str, str], Field(max_length=256)] = {}
    env: Annotated[dict[str, str], Field(max_length=1_024, repr=False)] = {}
    from_snapshot: Name | None = None
    egress: ToldEgress | None = None

    @classmethod
    def of(cls, request: CreateRequest) -> ToldCreate:
        owner, size = request.owner, request.size
        labels = {
            **request.labels, LABEL_SANDBOX: owner.sandbox, LABEL_INSTALLATION: owner.installation,
            LABEL_ORG: request.org, LABEL_PROJECT: request.project,
        }  # fmt: skip
        return cls(
            id=owner.sandbox, template=request.template, image=request.image, ttl_seconds=request.ttl_seconds,
            resources=ToldResources(cpu=size.cpu_millis / 1000, memory_mib=size.memory_mib, disk_gib=size.disk_gib),
            labels=labels, env=dict(request.env), from_snapshot=request.from_snapshot,
            egress=ToldEgress.of(request.egress) if request.egress is not None else None,
        )  # fmt: skip

    def value(self, from_snapshot: str | None) -> CreateRequest:
        size = Size(
            sandboxes=1, cpu_millis=_millis(self.resources.cpu), memory_mib=self.resources.memory_mib,
            disk_gib=self.resources.disk_gib,
        )  # fmt: skip
        labels = {name: value for name, value in self.labels.items() if not name.startswith(LABEL_PREFIX)}
        return CreateRequest(
            Owner(self.labels.get(LABEL_INSTALLATION, ""), self.id), self.labels.get(LABEL_ORG, ""),
            self.labels.get(LABEL_PROJECT, ""), self.template, self.image, size, self.ttl_seconds, labels, self.env,
            from_snapshot, self.egress.value() if self.egress is not None else None,
        )  # fmt: skip


# Commands. Text is what version 1 has; bytes that are no text travel as base64 between peers that know it.

ENCODING_AUTO: Final = "auto"


def as_text(data: bytes, encoding: str | None) -> tuple[str, str | None]:
    """Bytes as a JSON string, and how they are encoded if it is not plain text."""
    if encoding != ENCODING_AUTO:
        return data.decode(errors="replace"), None
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def from_text(text: str, encoding: str | None) -> bytes:
    if encoding != "base64":
        return text.encode(errors="surrogatepass")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None


class ToldExec(Told):
    command: str | None = None
    args: list[str] | None = None
    env: dict[str, str] = {}
    cwd: str | None = None
    stdin: str | None = None
    timeout_seconds: int = 0
    """0 is the default."""
    encoding: Text | None = None
    output_bytes_max: Annotated[int, Field(ge=0, le=16 * 1024 * 1024)] | None = None

    @classmethod
    def of(cls, request: ExecRequest) -> ToldExec:
        return cls(
            command=request.command, args=request.args, env=request.env, cwd=request.cwd, stdin=request.stdin,
            timeout_seconds=request.timeout_seconds,
        )  # fmt: skip

    def value(self) -> ExecRequest:
        seconds = min(self.timeout_seconds, EXEC_SECONDS_MAX_JOB) or EXEC_SECONDS_DEFAULT
        return ExecRequest(
            command=self.command, args=self.args, env=self.env, cwd=self.cwd, stdin=self.stdin, timeout_seconds=seconds
        )


class ToldResult(Told):
    exit_code: int
    stdout: str = ""
    stderr: str = ""
    duration_ms: int = 0
    truncated: bool = False
    encoding: Text | None = None
    stdout_dropped_bytes: int = 0
    stderr_dropped_bytes: int = 0
    timed_out: bool | None = None

    @classmethod
    def of(cls, result: CommandResult, encoding: str | None) -> ToldResult:
        stdout, how_stdout = as_text(result.stdout, encoding)
        stderr, how_stderr = as_text(result.stderr, encoding)
        how = how_stdout or how_stderr
        if how is not None:  # one name for both
            stdout, stderr = (base64.b64encode(data).decode() for data in (result.stdout, result.stderr))
        return cls(
            exit_code=result.exit_code, stdout=stdout, stderr=stderr, duration_ms=result.duration_ms, encoding=how,
            truncated=bool(result.stdout_dropped_bytes or result.stderr_dropped_bytes),
            stdout_dropped_bytes=result.stdout_dropped_bytes, stderr_dropped_bytes=result.stderr_dropped_bytes,
            timed_out=result.timed_out,
        )  # fmt: skip


class ToldEvent(Told):
    """One line of a stream. Exactly one of `data`, `exitCode`, `error` and `quiet` is what it says."""

    stream: Literal["stdout", "stderr"] | None = None
    data: str = ""
    encoding: Text | None = None
    exit_code: int | None = None
    duration_ms: int | None = None
    timed_out: bool | None = None
    stdout_dropped_bytes: int = 0
    stderr_dropped_bytes: int = 0
    error: str | None = None
    code: Text | None = None
    settled: bool | None = None
    quiet: bool = False


class ToldFile(Told):
    name: str
    path: str
    size: Count = 0
    is_dir: bool = False
    mode: Annotated[str, Field(coerce_numbers_to_str=True)] = ""
    modified_at: AwareDatetime | None = None

    def value(self) -> FileInfo:
        return FileInfo(
            name=self.name, path=self.path, size=self.size, is_dir=self.is_dir, mode=self.mode,
            modified_at=self.modified_at,
        )  # fmt: skip


class ToldJob(Told):
    id: Name
    state: JobState
    exit_code: int | None = None
    started_at: AwareDatetime | None = None
    stdout_bytes: Count = 0
    stderr_bytes: Count = 0

    def value(self) -> Job:
        return Job(
            id=self.id, state=self.state, exit_code=self.exit_code, started_at=self.started_at,
            stdout_bytes=self.stdout_bytes, stderr_bytes=self.stderr_bytes,
        )  # fmt: skip


class ToldJobOutput(Told):
    data: str
    encoding: Text | None = None
    next: Count
    ended: bool


class ToldSnapshotRequest(Told):
    kind: SnapshotKind = SnapshotKind.DISK
    operation: Text = ""
    name: Text = ""

    def value(self) -> SnapshotRequest:
        return SnapshotRequest(self.kind, self.operation, self.name)


class ToldSnapshot(Told):
    ref: Name
    kind: SnapshotKind
    size_bytes: Count | None = None
    state: SnapshotState = SnapshotState.READY
    message: Text = ""
    sandbox_id: Text | None = None
    installation: Text | None = None

    @classmethod
    def of(cls, snapshot: SnapshotInfo, ref: str) -> ToldSnapshot:
        return cls(
            ref=ref, kind=snapshot.kind, size_bytes=snapshot.size_bytes, state=snapshot.state, message=snapshot.message,
            sandbox_id=snapshot.owner.sandbox, installation=snapshot.owner.installation,
        )  # fmt: skip

    def owned_by(self, owner: Owner) -> bool:
        return self.sandbox_id in (None, owner.sandbox) and self.installation in (None, owner.installation)

    def value(self, owner: Owner) -> SnapshotInfo:
        return SnapshotInfo(self.ref, owner, self.kind, self.state, self.size_bytes, self.message)


class ToldTransition(Told):
    operation: Text = ""
    incarnation: Text = ""
    observe_only: bool = False

    @classmethod
    def of(cls, transition: Transition) -> ToldTransition:
        return cls(
            operation=transition.operation, incarnation=transition.incarnation, observe_only=transition.observe_only
        )

    def value(self) -> Transition:
        return Transition(self.operation, self.incarnation, self.observe_only)


class ToldTransitioned(Told):
    progress: Progress
    instance: InstanceJson
    message: Text = ""


class ToldPort(Told):
    port: Annotated[int, Field(ge=1, le=65_535)]
    seconds: Count = 3_600


class ToldExposure(Told):
    url: Annotated[str, Field(max_length=8_192, pattern=r"^https?://[!-~]+$", repr=False)]
    expires_at: AwareDatetime | None = None


class ToldUntil(Told):
    until: AwareDatetime


class ToldExpiry(Told):
    expires_at: datetime | None = None


class ToldTarget(Told):
    installation: Name
    sandbox_id: Name
    ref: Name | None = None


class ToldTargets(Told):
    targets: Annotated[list[ToldTarget], Field(max_length=1_000)]


class ToldFailure(Told):
    code: Text
    message: Text = ""
    details: dict[str, JsonValue] = {}


class ToldObservation(Told):
    instance: InstanceJson | None = None
    error: ToldFailure | None = None


class ToldCatalog(Told):
    templates: dict[str, str] = {}
    regions: dict[str, str] = {}

    def value(self) -> Catalog:
        return Catalog(self.templates, self.regions)


def info_json(info: Info, capabilities: Capabilities, features: frozenset[str], operations: Sequence[str]) -> Json:
    """The answer to /info."""
    about = ToldInfo(
        kind=info.kind, version=info.version, trust=info.trust, isolation=info.isolation, protocol=info.protocol,
        description=info.description, idempotent_create=info.idempotent_create, settles_seconds=info.settles_seconds,
        create_seconds=info.create_seconds,
    )  # fmt: skip
    limits = ToldCapabilities(
        features=features, max_cpu=capabilities.max_cpu_millis / 1000, max_memory_mib=capabilities.max_memory_mib,
        max_disk_gib=capabilities.max_disk_gib, templates=capabilities.templates, regions=capabilities.regions,
        max_lifetime_seconds=capabilities.max_lifetime_seconds, lease_seconds=capabilities.lease_seconds,
        snapshot_stops=capabilities.snapshot_stops, idles_by_itself=capabilities.idles_by_itself,
    )  # fmt: skip
    shown: Json = {**limits.json_(), "features": list[JsonValue](sorted(features))}
    return {"info": about.json_(), "capabilities": shown, "operations": list[JsonValue](sorted(operations))}


def capacity_json(capacity: Capacity) -> Json:
    return ToldCapacity(
        bounded=capacity.bounded, free_cpu=capacity.free_cpu_millis / 1000, free_memory_mib=capacity.free_memory_mib,
        largest_free_cpu=capacity.largest_free_cpu_millis / 1000,
        largest_free_memory_mib=capacity.largest_free_memory_mib,
    ).json_()  # fmt: skip


def file_json(file: FileInfo) -> Json:
    return file.model_dump(mode="json", by_alias=True, exclude_none=True)


def owner_headers(owner: Owner) -> Mapping[str, str]:
    return {HEADER_INSTALLATION: quote(owner.installation), HEADER_SANDBOX: quote(owner.sandbox)}
