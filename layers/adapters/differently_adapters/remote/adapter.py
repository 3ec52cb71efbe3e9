"""The `remote` kind: a backend behind the plugin protocol, whoever wrote the plugin and in whatever language.

What the pool supports is what the plugin's /info says, within our class. A plugin that lists its operations checks the
owner itself on every call; a version 1 plugin cannot, so its instance is looked at before anything is done to it.
"""

from __future__ import annotations

import posixpath
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import ClassVar, Final, TypeVar, cast, overload

from pydantic import JsonValue, TypeAdapter, ValidationError

from differently_core.contract import (
    PROTOCOL_VERSION,
    SUPPORTED,
    AdapterContext,
    Capabilities,
    Capacity,
    Catalog,
    CommandResult,
    CreateRequest,
    Declaration,
    EgressRules,
    ExecEvent,
    Exposure,
    FileContent,
    Files,
    Info,
    Instance,
    Instances,
    InstanceState,
    JobOutput,
    Observation,
    Observations,
    Operation,
    Owner,
    Progress,
    SnapshotInfo,
    SnapshotRequest,
    Supported,
    Target,
    Transition,
    Transitioned,
    unsupported,
)
from differently_core.errors import (
    BackendError,
    DifferentlyError,
    ExecUnconfirmed,
    InvalidRequest,
    InvalidState,
    NotFound,
    ProviderUnavailable,
)
from differently_core.model.exec import EXIT_TIMEOUT, FILE_BYTES_MAX, JOB_ID_PATTERN, ExecRequest, FileInfo, Job, Stream

from ..http import BadAnswer, Call, Deadlines, Http, segment
from ..http.failures import unavailable
from ..jobs import ShellJobs
from ..output import keep
from .config import RemoteConfig
from .envelope import error_of, explain
from .files import Spooled, content
from .following import Following
from .plugin import MADE_FROM, Plugin
from .wire import (
    BASE,
    BYTES,
    ENCODING_AUTO,
    HEADER_DEADLINE,
    HEADER_PROTOCOL,
    HEADER_QUIET,
    NDJSON,
    PREFER_BODY,
    InstanceJson,
    Json,
    Told,
    ToldCapacity,
    ToldCatalog,
    ToldCreate,
    ToldEgress,
    ToldExec,
    ToldExpiry,
    ToldExposure,
    ToldFile,
    ToldJob,
    ToldJobOutput,
    ToldObservation,
    ToldPlugin,
    ToldPort,
    ToldResult,
    ToldSnapshot,
    ToldSnapshotRequest,
    ToldTarget,
    ToldTransition,
    ToldTransitioned,
    ToldUntil,
    from_text,
    instance_json,
    instance_value,
    instances_json,
    is_owned,
    owner_headers,
)

T = TypeVar("T", bound=Told)
V = TypeVar("V")
W = TypeVar("W")

LOOK_SECONDS: Final = 15.0
LIST_SECONDS: Final = 60.0
CHANGE_SECONDS: Final = 60.0
FILE_SECONDS: Final = 300.0
GRACE_SECONDS: Final = 30.0
"""How much longer than the command itself an answer may take."""
KNOWN_SECONDS: Final = 60.0
"""What /info said is believed so long; probes of the pool ask more often anyway."""
UNKNOWN_SECONDS: Final = 5.0
"""How long a plugin that did not answer /info is not asked again just to know what it can do."""
NAME_BYTES_MAX: Final = 255
LIST_BYTES_MAX: Final = 64 * 1024 * 1024
EXEC_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of an answer to a command: version 1 plugins do not bound output, so more comes than is kept."""
STREAM_BYTES_MAX: Final = 16 * 1024**3
NOBODY: Final = "inst_00000000000000000000000000"
"""An installation that does not exist: whoever lists instances for it does not filter."""


class _PerPool:
    """The class declares everything; an adapter that has met its plugin declares what that plugin offers."""

    _everything: Declaration = dict.fromkeys(Operation, SUPPORTED)

    @overload
    def __get__(self, adapter: None, owner: type[object]) -> Declaration: ...
    @overload
    def __get__(self, adapter: RemoteAdapter, owner: type[object]) -> Declaration: ...
    def __get__(self, adapter: RemoteAdapter | None, owner: type[object]) -> Declaration:
        plugin = None if adapter is None else adapter.known()
        return self._everything if plugin is None else plugin.operations


class RemoteAdapter:
    kind: ClassVar[str] = "remote"
    operations: ClassVar[Declaration] = cast("Declaration", _PerPool())

    def __init__(self, context: AdapterContext) -> None:
        if not isinstance(context.config, RemoteConfig):
            raise TypeError("a remote adapter needs a RemoteConfig")
        config = context.config
        self._config = config
        self._pool = context.pool
        self._clock = context.clock
        token = context.credential.get("token", "").strip()
        headers = {HEADER_PROTOCOL: PROTOCOL_VERSION}
        if token:
            headers["authorization"] = f"Bearer {token}"
        self._http = Http(
            config.parsed(), context.clock, headers=headers, secrets=context.untold, rules=config.rules(),
            explain=explain, check=_check_protocol, authorities=config.authorities,
        )  # fmt: skip
        self._jobs = ShellJobs(self.exec, lambda _: config.jobs_directory)
        self._lock = threading.Lock()
        self._plugin: Plugin | None = None
        self._asked_at: float | None = None

    # What the plugin is.

    def known(self) -> Plugin | None:
        """What the plugin offers, asked for if that was long ago; None when it has never answered."""
        with self._lock:
            now = self._clock.monotonic()
            believed = UNKNOWN_SECONDS if self._plugin is None else KNOWN_SECONDS
            if self._asked_at is not None and now - self._asked_at < believed:
                return self._plugin
            self._asked_at = now
        try:
            return self._ask()
        except DifferentlyError:
            return self._plugin

    def _ask(self) -> Plugin:
        told = self._get(ToldPlugin, "/info", LOOK_SECONDS)
        if told.info.protocol != PROTOCOL_VERSION:
            raise ProviderUnavailable(_versions(told.info.protocol), settled=True)
        plugin = Plugin(told)
        with self._lock:
            self._plugin, self._asked_at = plugin, self._clock.monotonic()
        return plugin

    def _met(self) -> Plugin:
        """What the plugin offers; raises when it has never answered."""
        return self.known() or self._ask()

    def _need(self, operation: Operation) -> Plugin:
        """The plugin, if it offers the operation; otherwise raises before any I/O of that operation."""
        plugin = self._met()
        if not isinstance(plugin.operations[operation], Supported):
            raise unsupported(self, operation, self._pool)
        return plugin

    def info(self) -> Info:
        plugin = self.known()
        if plugin is None:
            return Info(
                self.kind, "", None, "as the plugin declares", idempotent_create=False,
                settles_seconds=self._config.settles_seconds, create_seconds=self._config.create_seconds,
                description="A plugin that has not answered yet.",
            )  # fmt: skip
        told = plugin.info
        return Info(
            self.kind, told.version, None, told.isolation or "as the plugin declares",
            idempotent_create=told.idempotent_create,
            settles_seconds=_first(told.settles_seconds, self._config.settles_seconds),
            create_seconds=_first(told.create_seconds, self._config.create_seconds),
            description=f"{told.kind or 'plugin'}: {told.description}".removesuffix(": "),
        )  # fmt: skip

    def capabilities(self) -> Capabilities:
        return self._ask().capabilities()

    def capacity(self) -> Capacity:
        return self._get(ToldCapacity, "/capacity", LOOK_SECONDS).value()

    def health(self) -> None:
        answer = self._http.json(Call("GET", f"{BASE}/health", Deadlines(LOOK_SECONDS)))
        if not isinstance(answer, dict) or answer.get("status") != "ok":
            raise ProviderUnavailable("The plugin does not say that it is well.", settled=True)

    def discover(self) -> Catalog:
        plugin = self._need(Operation.DISCOVER)
        if Operation.DISCOVER in plugin.routes:
            return self._get(ToldCatalog, "/catalog", LOOK_SECONDS).value()
        told = self.capabilities()
        return Catalog(dict.fromkeys(told.templates, ""), dict.fromkeys(told.regions, ""))

    def verify_credential(self) -> None:
        """Our own token, and then the plugin's credential for what is behind it."""
        plugin = self._ask()
        if Operation.VERIFY_CREDENTIAL in plugin.routes:
            self._http.json(Call("GET", f"{BASE}/credential", Deadlines(LOOK_SECONDS)))

    # Lifecycle.

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        self._met()
        call = self._call("POST", "/instances", request.owner, deadline, ToldCreate.of(request).json_())
        return _ours(self._parsed(call, self._http.json(call), instance_json), request.owner)

    def get(self, target: Target) -> Instance:
        if target.ref is None:
            return self._find(target.owner)[0]
        call = self._call("GET", _instance(target.ref), target.owner, LOOK_SECONDS)
        told = self._parsed(call, self._http.json(call), instance_json)
        if not is_owned(told, target.owner):
            raise _missing(target.owner)
        return instance_value(told, target.owner)

    def list(self, installation: str) -> Instances:
        self._met()
        entries = self._listed({"installation": installation})
        if any(entry.get("installation") is None for entry in entries) and self._listed({"installation": NOBODY}):
            raise ProviderUnavailable(
                "The plugin lists instances without regard to the installation; they cannot be told apart.",
                settled=True,
            )
        return [
            instance_value(entry, Owner(installation, entry["sandboxId"]))
            for entry in entries
            if entry.get("installation") in (None, installation)
        ]

    def _listed(self, query: Mapping[str, str]) -> Sequence[InstanceJson]:
        deadlines = Deadlines(LIST_SECONDS)
        call = Call("GET", f"{BASE}/instances", deadlines, query=query, answer_bytes_max=LIST_BYTES_MAX)
        return self._parsed(call, self._http.json_bytes(call), instances_json)

    def _find(self, owner: Owner) -> Sequence[Instance]:
        """Every instance that carries the owner, at least one."""
        if self._met().checks_owner:
            entries = self._listed({"installation": owner.installation, "sandboxId": owner.sandbox})
            found = [instance_value(entry, owner) for entry in entries if is_owned(entry, owner)]
        else:
            found = [instance for instance in self.list(owner.installation) if instance.owner == owner]
        if not found:
            raise _missing(owner)
        return found

    def delete(self, target: Target) -> None:
        plugin = self._met()
        if target.ref is not None:
            self._delete(plugin, Target(target.owner, target.ref), _instance(target.ref))
        elif plugin.checks_owner:
            query = {"installation": target.owner.installation, "sandboxId": target.owner.sandbox}
            self._http.answer(self._call("DELETE", "/instances", target.owner, CHANGE_SECONDS, query=query))
        else:
            self._delete_found(plugin, target.owner)

    def _delete_found(self, plugin: Plugin, owner: Owner) -> None:
        try:
            found = self._find(owner)
        except NotFound:
            return
        for instance in found:
            self._delete(plugin, Target(owner, instance.ref), _instance(instance.ref))

    def _delete(self, plugin: Plugin, target: Target, path: str) -> None:
        if not plugin.checks_owner and not self._exists(target):
            return
        try:
            self._http.answer(self._call("DELETE", path, target.owner, CHANGE_SECONDS))
        except NotFound:
            if plugin.checks_owner:  # it says so only of what is not the owner's
                raise

    def _exists(self, target: Target) -> bool:
        """Whether a version 1 plugin has it; raises `NotFound` when it has it and it is not known to be the owner's.

        Such a plugin tells of one instance only its sandbox; of the installation, what it lists for it. A delete is
        worth the longer look.
        """
        assert target.ref is not None
        if not self._answers(target):
            return False
        if (target.ref, target.owner) in [(one.ref, one.owner) for one in self.list(target.owner.installation)]:
            return True
        if not self._answers(target):  # another delete was faster, between the two looks
            return False
        raise _missing(target.owner)

    def _answers(self, target: Target) -> bool:
        assert target.ref is not None
        try:
            self._http.answer(self._call("GET", _instance(target.ref), target.owner, LOOK_SECONDS))
        except NotFound:
            return False
        return True

    def _checked(self, target: Target, operation: Operation = Operation.EXEC) -> str:
        """The path of an instance that is the owner's and of an operation that the plugin offers."""
        plugin = self._need(operation)
        if target.ref is None:
            return _instance(self._find(target.owner)[0].ref)
        if not plugin.checks_owner:
            self.get(target)
        return _instance(target.ref)

    def renew(self, target: Target, until: datetime) -> datetime | None:
        path = self._checked(target, Operation.RENEW)
        call = self._call("POST", f"{path}/renew", target.owner, CHANGE_SECONDS, ToldUntil(until=until).json_())
        return self._read(call, ToldExpiry).expires_at

    def stop(self, target: Target, deadline: float) -> Instance:
        return self._moved(target, Operation.STOP, deadline)

    def start(self, target: Target, deadline: float) -> Instance:
        return self._moved(target, Operation.START, deadline)

    def _moved(self, target: Target, operation: Operation, deadline: float) -> Instance:
        path = self._checked(target, operation)
        call = self._call("POST", f"{path}/{operation}", target.owner, deadline, headers=PREFER_BODY)
        told = self._answered(call, instance_json)
        return self.get(target) if told is None else _ours(told, target.owner)

    def pause(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        return self._transition(target, Operation.PAUSE, "pause", transition, deadline)

    def resume(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        return self._transition(target, Operation.RESUME, "resume", transition, deadline)

    def call_off(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        return self._transition(target, Operation.CALL_OFF, "call-off", transition, deadline)

    def _transition(
        self, target: Target, operation: Operation, action: str, transition: Transition, deadline: float
    ) -> Transitioned:
        path = self._checked(target, operation)
        if not self._met().checks_owner:
            return self._plain_transition(target, operation, f"{path}/{action}", transition, deadline)
        body = ToldTransition.of(transition).json_()
        call = self._call("POST", f"{path}/{action}", target.owner, deadline, body, headers=PREFER_BODY)
        told = self._read(call, ToldTransitioned)
        return Transitioned(told.progress, _ours(told.instance, target.owner), told.message)

    def _plain_transition(
        self, target: Target, operation: Operation, path: str, transition: Transition, deadline: float
    ) -> Transitioned:
        """Version 1 knows no incarnations and no attempts: it acts, and how that stands is seen on the instance."""
        if transition.incarnation:
            raise InvalidState("The plugin does not tell incarnations apart.")
        if not transition.observe_only:
            self._http.answer(self._call("POST", path, target.owner, deadline))
        instance = self.get(target)
        wanted = InstanceState.PAUSED if operation is Operation.PAUSE else InstanceState.RUNNING
        return Transitioned(Progress.DONE if instance.state is wanted else Progress.UNDERWAY, instance)

    # Snapshots, ports, egress.

    def snapshot(self, target: Target, request: SnapshotRequest, deadline: float) -> SnapshotInfo:
        path = self._checked(target, Operation.SNAPSHOT)
        asked: Json = {"kind": request.kind.value}
        if self._met().checks_owner:
            asked = ToldSnapshotRequest(kind=request.kind, operation=request.operation, name=request.name).json_()
        call = self._call("POST", f"{path}/snapshots", target.owner, deadline, asked)
        told = self._read(call, ToldSnapshot)
        if not told.owned_by(target.owner):
            raise ProviderUnavailable("The plugin answered with another sandbox's snapshot.")
        return told.value(target.owner)

    def snapshot_get(self, owner: Owner, ref: str) -> SnapshotInfo:
        self._need(Operation.SNAPSHOT_GET)
        told = self._read(self._call("GET", f"/snapshots/{segment(ref)}", owner, LOOK_SECONDS), ToldSnapshot)
        if not told.owned_by(owner):
            raise NotFound(f"Sandbox {owner.sandbox} has no such snapshot.")
        return told.value(owner)

    def snapshot_delete(self, owner: Owner, ref: str) -> None:
        plugin = self._need(Operation.SNAPSHOT_DELETE)
        try:
            self._http.answer(self._call("DELETE", f"/snapshots/{segment(ref)}", owner, CHANGE_SECONDS))
        except NotFound:
            if plugin.checks_owner:
                raise

    def port_expose(self, target: Target, port: int, seconds: int) -> Exposure:
        _check_port(port)
        path = self._checked(target, Operation.PORT_EXPOSE)
        asked: Json = {"port": port}
        if self._met().checks_owner:
            asked = ToldPort(port=port, seconds=seconds).json_()
        told = self._read(self._call("POST", f"{path}/ports", target.owner, CHANGE_SECONDS, asked), ToldExposure)
        return Exposure(port, told.url, told.expires_at)

    def port_revoke(self, target: Target, port: int) -> None:
        _check_port(port)
        path = self._checked(target, Operation.PORT_REVOKE)
        self._http.answer(self._call("DELETE", f"{path}/ports/{port}", target.owner, CHANGE_SECONDS))

    def egress_set(self, target: Target, rules: EgressRules) -> None:
        path = self._checked(target, Operation.EGRESS_SET)
        self._http.answer(
            self._call("PUT", f"{path}/egress", target.owner, CHANGE_SECONDS, ToldEgress.of(rules).json_())
        )

    def observe_many(self, targets: Sequence[Target]) -> Observations:
        self._need(Operation.OBSERVE_MANY)
        asked = [
            ToldTarget(
                installation=target.owner.installation, sandbox_id=target.owner.sandbox, ref=target.ref
            ).json_()
            for target in targets
        ]  # fmt: skip
        call = Call(
            "POST", f"{BASE}/observe", Deadlines(LIST_SECONDS), body={"targets": list[JsonValue](asked)}, mutates=False,
            answer_bytes_max=LIST_BYTES_MAX,
        )  # fmt: skip
        told = self._parsed(call, self._http.json(call), _OBSERVATIONS)
        if len(told) != len(targets):
            raise ProviderUnavailable("The plugin did not tell of every instance that it was asked for.", settled=True)
        return [_observation(target, one) for target, one in zip(targets, told, strict=True)]

    # Commands and jobs.

    def exec(self, target: Target, request: ExecRequest, output_bytes_max: int) -> CommandResult:
        path = self._checked(target)
        seconds = request.timeout_seconds + GRACE_SECONDS
        call = self._call("POST", f"{path}/exec", target.owner, seconds, self._command(request, output_bytes_max))
        call = replace(call, lost=ExecUnconfirmed, answer_bytes_max=EXEC_BYTES_MAX)
        told = self._read(call, ToldResult)
        try:
            stdout, stderr = (from_text(text, told.encoding) for text in (told.stdout, told.stderr))
        except ValueError:
            raise ExecUnconfirmed("The plugin's answer to the command is damaged.") from None
        return _result(told, stdout, stderr, request, output_bytes_max)

    def exec_stream(self, target: Target, request: ExecRequest, quiet_seconds: float) -> Iterator[ExecEvent]:
        path = self._checked(target, Operation.EXEC_STREAM)
        tells_quiet = self._met().checks_owner
        begun = self._clock.monotonic()
        call = self._call(
            "POST", f"{path}/exec", target.owner, request.timeout_seconds + GRACE_SECONDS, self._command(request),
            query={"stream": "1"}, headers={HEADER_QUIET: f"{quiet_seconds:.3f}"} if tells_quiet else {},
        )  # fmt: skip
        # A plugin that gives signs of life is not waited for longer than some of them.
        read = 3 * quiet_seconds + GRACE_SECONDS if tells_quiet else None
        call = replace(
            call, lost=ExecUnconfirmed, answer_bytes_max=STREAM_BYTES_MAX, accept=NDJSON,
            deadlines=replace(call.deadlines, read=read),
        )  # fmt: skip
        return Following(
            self._http.stream(call), quiet_seconds, request.timeout_seconds * 1000,
            lambda: round((self._clock.monotonic() - begun) * 1000), self._http.redact,
        )  # fmt: skip

    def _command(self, request: ExecRequest, output_bytes_max: int | None = None) -> Json:
        told = ToldExec.of(request)
        if self._met().checks_owner:
            told = told.model_copy(update={"encoding": ENCODING_AUTO, "output_bytes_max": output_bytes_max})
        return told.json_()

    def job_start(self, target: Target, job: str, request: ExecRequest) -> Job:
        if self._is_made(Operation.JOB_START):
            return self._jobs.start(target, job, request)
        return self._job("POST", target, Operation.JOB_START, job, "", self._command(request))

    def job_status(self, target: Target, job: str) -> Job:
        if self._is_made(Operation.JOB_STATUS):
            return self._jobs.status(target, job)
        return self._job("GET", target, Operation.JOB_STATUS, job)

    def job_output(self, target: Target, job: str, stream: Stream, offset: int, limit: int) -> JobOutput:
        if self._is_made(Operation.JOB_OUTPUT):
            return self._jobs.output(target, job, stream, offset, limit)
        path = self._checked(target, Operation.JOB_OUTPUT)
        query = {"offset": str(offset), "limit": str(limit)}
        call = self._call("GET", f"{path}/jobs/{_job_segment(job)}/{stream}", target.owner, LOOK_SECONDS, query=query)
        told = self._read(call, ToldJobOutput)
        data = from_text(told.data, told.encoding)
        if len(data) > limit or told.next != offset + len(data):
            raise ProviderUnavailable("The plugin's answer about the job's output does not add up.", settled=True)
        return JobOutput(data, told.next, told.ended)

    def job_stop(self, target: Target, job: str) -> Job:
        if self._is_made(Operation.JOB_STOP):
            return self._jobs.stop(target, job)
        return self._job("POST", target, Operation.JOB_STOP, job, "/stop")

    def job_interrupt(self, target: Target, job: str) -> Job:
        if self._is_made(Operation.JOB_INTERRUPT):
            return self._jobs.interrupt(target, job)
        return self._job("POST", target, Operation.JOB_INTERRUPT, job, "/interrupt")

    def _is_made(self, operation: Operation) -> bool:
        """The plugin has no route for it, and has one for what we make it from."""
        return operation not in self._met().routes and operation in MADE_FROM

    def _job(
        self, method: str, target: Target, operation: Operation, job: str, action: str = "", body: Json | None = None
    ) -> Job:
        path = self._checked(target, operation)
        call = self._call(
            method, f"{path}/jobs/{_job_segment(job)}{action}", target.owner, CHANGE_SECONDS, body,
            lost=ExecUnconfirmed if operation is Operation.JOB_START else ProviderUnavailable,
        )  # fmt: skip
        return self._read(call, ToldJob).value()

    # Files.

    def file_read(self, target: Target, path: str) -> FileContent:
        call = self._file("GET", target, Operation.FILE_READ, path, "/content")
        return content(self._http.stream(replace(call, accept=BYTES, answer_bytes_max=FILE_BYTES_MAX)))

    def file_write(self, target: Target, path: str, data: Iterable[bytes]) -> FileInfo:
        self._need(Operation.FILE_WRITE)
        spooled = Spooled(data)
        try:
            call = self._file("PUT", target, Operation.FILE_WRITE, path, "/content")
            headers = {**call.headers, "content-type": BYTES, "content-length": str(spooled.size), **PREFER_BODY}
            told = self._answered(replace(call, headers=headers, content=spooled), ToldFile.model_validate)
        finally:
            spooled.close()
        return self.file_stat(target, path) if told is None else told.value()

    def file_list(self, target: Target, path: str) -> Files:
        call = replace(self._file("GET", target, Operation.FILE_LIST, path), answer_bytes_max=LIST_BYTES_MAX)
        return [told.value() for told in self._parsed(call, self._http.json(call), _FILES)]

    def file_stat(self, target: Target, path: str) -> FileInfo:
        if not self._is_made(Operation.FILE_STAT):
            return self._read(self._file("GET", target, Operation.FILE_STAT, path, "/info"), ToldFile).value()
        return self._entry(target, path)

    def _entry(self, target: Target, path: str) -> FileInfo:
        """What the list of its directory says of a path; the root is in no list."""
        self._need(Operation.FILE_STAT)
        _check_path(path)
        parent, name = posixpath.split(path.rstrip("/") or "/")
        if not name:
            self.file_list(target, path)
            return FileInfo(name="", path=path, size=0, is_dir=True, mode="")
        for entry in self.file_list(target, parent or "."):
            if entry.name == name:
                return entry
        raise NotFound(f"There is no file {path!r} in the sandbox.", field="path")

    def file_delete(self, target: Target, path: str) -> None:
        if not self._is_made(Operation.FILE_DELETE):
            self._http.answer(self._file("DELETE", target, Operation.FILE_DELETE, path))
            return
        self._need(Operation.FILE_DELETE)
        _check_path(path)
        if not path.strip("/."):
            raise InvalidRequest("The root cannot be deleted.", field="path")
        removal = ExecRequest(args=["rm", "-rf", "--", path], timeout_seconds=round(CHANGE_SECONDS))
        if self.exec(target, removal, 1_000).exit_code != 0:
            raise InvalidState("The sandbox could not delete the path.")

    def _file(self, method: str, target: Target, operation: Operation, path: str, part: str = "") -> Call:
        where = f"{self._checked(target, operation)}/files{part}"
        return self._call(method, where, target.owner, FILE_SECONDS, query={"path": path})

    def close(self) -> None:
        self._http.close()

    # One call.

    def _call(
        self,
        method: str,
        path: str,
        owner: Owner,
        seconds: float,
        body: Json | None = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        lost: type[BackendError] = ProviderUnavailable,
    ) -> Call:
        """A call that names its owner and how long it may take, which version 1 plugins do not look at."""
        about = {HEADER_DEADLINE: f"{min(seconds, 86_400.0):.3f}", **owner_headers(owner), **(headers or {})}
        return Call(method, f"{BASE}{path}", Deadlines(seconds), query=query or {}, headers=about, body=body, lost=lost)

    def _get(self, shape: type[T], path: str, seconds: float) -> T:
        return self._read(Call("GET", f"{BASE}{path}", Deadlines(seconds)), shape)

    def _read(self, call: Call, shape: type[T]) -> T:
        return self._parsed(call, self._http.json(call), shape.model_validate)

    def _answered(self, call: Call, shaped: Callable[[JsonValue], V]) -> V | None:
        """What the plugin tells of a change; None where it only says that it was made, as version 1 does."""
        with self._http.stream(call) as answer:
            value = None if answer.status == 204 else answer.json()
        return None if value is None else self._parsed(call, value, shaped)

    def _parsed(self, call: Call, value: W, shaped: Callable[[W], V]) -> V:
        try:
            return shaped(value)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
        raise unavailable(
            f"The plugin's answer is not what the protocol says: {self._http.redact(where)[:100]}.",
            settled=not call.changes, lost=call.lost,
        )  # fmt: skip


_OBSERVATIONS: Final = TypeAdapter(list[ToldObservation]).validate_python
_FILES: Final = TypeAdapter(list[ToldFile]).validate_python


def _check_protocol(headers: Mapping[str, str]) -> None:
    """An answer without our protocol is not from a plugin, whatever its status says."""
    theirs = headers.get(HEADER_PROTOCOL)
    if theirs != PROTOCOL_VERSION:
        raise BadAnswer(_versions(theirs))


def _versions(theirs: str | None) -> str:
    told = "names no protocol version" if theirs is None else f"speaks adapter protocol {theirs!r}"
    return f"The plugin {told}; ours is {PROTOCOL_VERSION!r}."


def _first(told: float | None, configured: float) -> float:
    return configured if told is None else told


def _instance(ref: str) -> str:
    return f"/instances/{segment(ref)}"


def _job_segment(job: str) -> str:
    if not re.fullmatch(JOB_ID_PATTERN, job):
        raise InvalidRequest("The job id is not valid.", field="job")
    return segment(job)


def _check_path(path: str) -> None:
    """Of an operation on files that is made from others: what a plugin's own route would refuse."""
    names = path.split("/")
    if not path or "\0" in path or ".." in names or any(len(name.encode()) > NAME_BYTES_MAX for name in names):
        raise InvalidRequest("The path cannot be used.", field="path")


def _check_port(port: int) -> None:
    if not 1 <= port <= 65_535:
        raise InvalidRequest("A port is a number from 1 to 65535.", field="port")


def _missing(owner: Owner) -> NotFound:
    return NotFound(f"Sandbox {owner.sandbox} has no such instance.")


def _ours(told: InstanceJson, owner: Owner) -> Instance:
    """The instance that a change was answered with; somebody else's leaves open what was changed."""
    if not is_owned(told, owner):
        raise ProviderUnavailable("The plugin answered with another sandbox's instance.")
    return instance_value(told, owner)


def _observation(target: Target, told: ToldObservation) -> Observation:
    if told.error is not None:
        return error_of(told.error, mutates=False)
    if told.instance is None or not is_owned(told.instance, target.owner):
        return _missing(target.owner)
    return instance_value(told.instance, target.owner)


def _result(
    told: ToldResult, stdout: bytes, stderr: bytes, request: ExecRequest, output_bytes_max: int
) -> CommandResult:
    """Bounded here as well: version 1 plugins return all that was written."""
    stdout, more_stdout = keep(stdout, output_bytes_max)
    stderr, more_stderr = keep(stderr, output_bytes_max)
    stdout_dropped = told.stdout_dropped_bytes + more_stdout
    stderr_dropped = told.stderr_dropped_bytes + more_stderr
    if told.truncated and not (stdout_dropped or stderr_dropped):
        stdout_dropped = 1  # something is missing, and nothing says how much of which
    timed_out = told.timed_out
    if timed_out is None:  # version 1 tells it by the code alone, which a command may also give by itself
        timed_out = told.exit_code == EXIT_TIMEOUT and told.duration_ms >= request.timeout_seconds * 1000
    return CommandResult(told.exit_code, stdout, stderr, told.duration_ms, stdout_dropped, stderr_dropped, timed_out)
