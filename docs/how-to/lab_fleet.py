"""The example of write-an-adapter.md: machines of a lab, each found by its name and owned by its tags."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from differently_adapters.jobs import ShellJobs
from differently_adapters.testing import HostShell
from differently_core.contract import (
    LABEL_INSTALLATION,
    LABEL_SANDBOX,
    REQUIRED,
    SUPPORTED,
    AdapterContext,
    Capabilities,
    Capacity,
    CommandResult,
    CreateRequest,
    Declaration,
    Info,
    Instance,
    Instances,
    InstanceState,
    JobOutput,
    Need,
    NotOffered,
    Operation,
    Owner,
    Registration,
    Requirements,
    Target,
    Unsupported,
    Verification,
)
from differently_core.errors import ExecUnconfirmed, NotFound, ProviderUnavailable
from differently_core.model import features
from differently_core.model.exec import ExecRequest, Job, Stream
from differently_core.runtime.clock import SystemClock

# --- the lab's own client; yours comes from your vendor ---


class FleetRefused(Exception):
    """The fleet cannot be reached, so nothing happened."""


class FleetTimeout(Exception):
    """No answer came, so nobody knows what happened."""


@dataclass(frozen=True)
class Machine:
    name: str
    tags: dict[str, str]
    env: dict[str, str] = field(repr=False)


class Fleet:
    def __init__(self, root: Path) -> None:
        self.machines: dict[str, Machine] = {}
        self.up = True
        self.silent: set[str] = set()
        """Calls whose answers get lost."""
        self._shell = HostShell(root, SystemClock())

    def boot(self, name: str, tags: dict[str, str], env: dict[str, str]) -> Machine:
        """A name that is taken leads to the machine that has it."""
        self._reach()
        made = self.machines.setdefault(name, Machine(name, tags, env))
        self._answer("boot")
        return made

    def find(self, name: str) -> Machine | None:
        self._reach()
        return self.machines.get(name)

    def everything(self) -> list[Machine]:
        self._reach()
        self._answer("everything")
        return list(self.machines.values())

    def destroy(self, name: str) -> None:
        self._reach()
        self.machines.pop(name, None)
        self._answer("destroy")

    def run(self, machine: Machine, request: ExecRequest, output_bytes_max: int) -> CommandResult:
        self._reach()
        result = self._shell.run(machine.name, machine.env, request, output_bytes_max)
        self._answer("run")
        return result

    def _reach(self) -> None:
        if not self.up:
            raise FleetRefused

    def _answer(self, call: str) -> None:
        if call in self.silent:
            raise FleetTimeout


# --- the adapter ---

JOBS = frozenset(
    {
        Operation.JOB_START, Operation.JOB_STATUS, Operation.JOB_OUTPUT, Operation.JOB_STOP, Operation.JOB_INTERRUPT,
    }
)  # fmt: skip


class LabFleetConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    rack: str = "any"


class LabFleetAdapter(NotOffered):
    kind: ClassVar[str] = "lab-fleet"
    operations: ClassVar[Declaration] = {
        **dict.fromkeys(REQUIRED | JOBS, SUPPORTED),
        Operation.EXEC_STREAM: Unsupported("no_streaming"),
        Operation.FILE_READ: Unsupported("no_file_access"),
        Operation.FILE_WRITE: Unsupported("no_file_access"),
        Operation.FILE_LIST: Unsupported("no_file_access"),
        Operation.FILE_STAT: Unsupported("no_file_access"),
        Operation.FILE_DELETE: Unsupported("no_file_access"),
        Operation.RENEW: Unsupported("no_lease"),
        Operation.STOP: Unsupported("machines_are_rebooted_only"),
        Operation.START: Unsupported("machines_are_rebooted_only"),
        Operation.PAUSE: Unsupported("memory_is_not_kept"),
        Operation.RESUME: Unsupported("memory_is_not_kept"),
        Operation.CALL_OFF: Unsupported("memory_is_not_kept"),
        Operation.SNAPSHOT: Unsupported("no_snapshots"),
        Operation.SNAPSHOT_GET: Unsupported("no_snapshots"),
        Operation.SNAPSHOT_DELETE: Unsupported("no_snapshots"),
        Operation.PORT_EXPOSE: Unsupported("no_gateway"),
        Operation.PORT_REVOKE: Unsupported("no_gateway"),
        Operation.EGRESS_SET: Unsupported("no_firewall"),
        Operation.OBSERVE_MANY: Unsupported("one_by_one"),
        Operation.DISCOVER: Unsupported("nothing_to_choose_from"),
        Operation.VERIFY_CREDENTIAL: Unsupported("no_credential"),
    }

    def __init__(self, context: AdapterContext, fleet: Fleet) -> None:
        self._pool = context.pool
        self._fleet = fleet
        self._jobs = ShellJobs(self.exec, lambda _: ".jobs")

    def info(self) -> Info:
        return Info(
            kind=self.kind, version="1", trust=None, isolation="virtual machine", idempotent_create=True,
            settles_seconds=0.0, description="Machines of the lab.",
        )  # fmt: skip

    def capabilities(self) -> Capabilities:
        return Capabilities(features=frozenset({features.EXEC, "isolation.microvm"}))

    def capacity(self) -> Capacity:
        return Capacity(bounded=False)

    def health(self) -> None:
        with _telling():
            self._fleet.everything()

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        tags = {
            **request.labels,
            LABEL_INSTALLATION: request.owner.installation,
            LABEL_SANDBOX: request.owner.sandbox,
        }
        with _telling():
            machine = self._fleet.boot(request.owner.sandbox, tags, dict(request.env))
        return _instance(_owned(machine, request.owner))

    def get(self, target: Target) -> Instance:
        return _instance(self._machine(target))

    def _machine(self, target: Target) -> Machine:
        with _telling():
            return _owned(self._fleet.find(target.ref or target.owner.sandbox), target.owner)

    def list(self, installation: str) -> Instances:
        with _telling():
            everything = self._fleet.everything()
        return [_instance(machine) for machine in everything if machine.tags.get(LABEL_INSTALLATION) == installation]

    def delete(self, target: Target) -> None:
        name = target.ref or target.owner.sandbox
        with _telling():
            machine = self._fleet.find(name)
            if machine is None:
                return
            if target.ref is None and _owner(machine) != target.owner:
                return  # nothing carries this owner
            self._fleet.destroy(_owned(machine, target.owner).name)

    def exec(self, target: Target, request: ExecRequest, output_bytes_max: int) -> CommandResult:
        machine = self._machine(target)
        try:
            with _telling():
                return self._fleet.run(machine, request, output_bytes_max)
        except ProviderUnavailable as error:
            if error.settled:
                raise
            raise ExecUnconfirmed("The fleet did not tell how the command ended.") from None

    def job_start(self, target: Target, job: str, request: ExecRequest) -> Job:
        return self._jobs.start(target, job, request)

    def job_status(self, target: Target, job: str) -> Job:
        return self._jobs.status(target, job)

    def job_output(self, target: Target, job: str, stream: Stream, offset: int, limit: int) -> JobOutput:
        return self._jobs.output(target, job, stream, offset, limit)

    def job_stop(self, target: Target, job: str) -> Job:
        return self._jobs.stop(target, job)

    def job_interrupt(self, target: Target, job: str) -> Job:
        return self._jobs.interrupt(target, job)

    def close(self) -> None:
        """Nothing is held."""


@contextlib.contextmanager
def _telling() -> Iterator[None]:
    """Refused means that nothing happened; no answer means that nobody knows."""
    try:
        yield
    except FleetRefused:
        raise ProviderUnavailable("The fleet cannot be reached.", settled=True) from None
    except FleetTimeout:
        raise ProviderUnavailable("The fleet did not answer.") from None


def _owner(machine: Machine) -> Owner:
    return Owner(machine.tags.get(LABEL_INSTALLATION, ""), machine.tags.get(LABEL_SANDBOX, ""))


def _owned(machine: Machine | None, owner: Owner) -> Machine:
    if machine is None or _owner(machine) != owner:
        raise NotFound(f"Sandbox {owner.sandbox} has no machine.")
    return machine


def _instance(machine: Machine) -> Instance:
    return Instance(machine.name, _owner(machine), InstanceState.RUNNING, prepared="tags")


REGISTRATION = Registration(
    kind="lab-fleet",
    config=LabFleetConfig,
    trust=None,
    dev_only=False,
    summary="Machines of a lab.",
    requirements=Requirements(credential=Need.NONE, credential_fields=()),
    verification=Verification.FAKE,
    limits=("Files cannot be read or written except by commands.",),
)
