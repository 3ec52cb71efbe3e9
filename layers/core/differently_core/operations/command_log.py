"""Who ran what: an event before a command, a job or a file call reaches the backend, and one with its end.

How much of the command is kept is a policy's to say. A keyed hash tells two equal commands from two different ones and
nothing else: without the installation's key nobody finds a short command by trying. Values of the sandbox's secrets are
masked before anything is made of the text. Stdin, env and output are never kept.

The first event is written before acting, and a store that fails fails the call. The second cannot call off what was
done, so it may be lost; then the end is unknown, which the log shows.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ..contract import CommandResult, ExecEvent, Exit, Output
from ..errors import DifferentlyError
from ..model.event import Event
from ..model.exec import ExecRequest, Job
from ..model.policy import CommandLog
from ..model.sandbox import Sandbox
from ..store.ports import Absent, Put
from .core import Caller, Core
from .masking import Mask

log = logging.getLogger(__name__)
TEXT_CHARACTERS_MAX = 4_096
Fact = str | int | bool | None
T = TypeVar("T")


@dataclass(frozen=True)
class Begun:
    """The event that was written before; its end names it."""

    core: Core
    caller: Caller
    event: Event

    def end(self, **facts: Fact) -> None:
        event = self.core.event(
            self.caller, f"{self.event.action}.end", self.event.target, self.event.org, project=self.event.project,
            pool=self.event.pool, details={"began": self.event.id, **facts},
        )  # fmt: skip
        _write_if_possible(self.core, event)


def begin(
    core: Core, caller: Caller, sandbox: Sandbox, action: str, subject: str | None, mask: Mask | None,
    **facts: Fact,
) -> Begun | None:  # fmt: skip
    """Write that this is about to be done; None where the policies keep no log. Raises when it cannot be written.

    `subject` is the command or the path, where there is one.
    """
    kept = _how_much(core, sandbox)
    if kept is CommandLog.NONE:
        return None
    details = dict(facts)
    if subject is not None:
        details |= _kept(core, sandbox.org, kept, mask.text(subject) if mask is not None else subject)
    event = _event(core, caller, action, sandbox, details)
    core.commit([Put(event, (Absent(),), "event")])
    return Begun(core, caller, event)


def job_ended(core: Core, caller: Caller, sandbox: Sandbox, job: Job) -> None:
    """Whoever looks sees it, so the actor is the one who looked."""
    if _how_much(core, sandbox) is not CommandLog.NONE:
        facts = {"job": job.id, "exitCode": job.exit_code, "stdoutBytes": job.stdout_bytes,
                 "stderrBytes": job.stderr_bytes, "state": job.state.value}  # fmt: skip
        _write_if_possible(core, _event(core, caller, "sandbox.job.end", sandbox, facts))


def _how_much(core: Core, sandbox: Sandbox) -> CommandLog:
    return core.catalog.rules(sandbox.org, sandbox.project, sandbox.classification).command_log


def _event(core: Core, caller: Caller, action: str, sandbox: Sandbox, details: Mapping[str, Fact]) -> Event:
    return core.event(
        caller, action, sandbox.id, sandbox.org, project=sandbox.project, pool=sandbox.pool, details=details
    )


def _write_if_possible(core: Core, event: Event) -> None:
    try:
        core.store.transact([Put(event, (Absent(),), "event")])
    except DifferentlyError as error:
        log.error("end not logged", extra={"org": event.org, "sandbox": event.target, "why": error.code})


def _kept(core: Core, org: str, kept: CommandLog, subject: str) -> dict[str, Fact]:
    if kept is CommandLog.TEXT:
        cut = len(subject) > TEXT_CHARACTERS_MAX
        return {"text": subject[:TEXT_CHARACTERS_MAX], **({"cut": True} if cut else {})}
    key = f"command-log:{org}:{core.catalog.installation().id_salt}".encode()
    return {"hash": hmac.new(key, subject.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()}


def command_of(request: ExecRequest) -> str:
    """One text for either form of a command."""
    return request.command if request.command is not None else shlex.join(request.args or ())


def command_facts(request: ExecRequest) -> dict[str, Fact]:
    return {"timeoutSeconds": request.timeout_seconds, "stdin": bool(request.stdin)}


# The end


def ended(begun: Begun | None, result: CommandResult) -> None:
    if begun is not None:
        begun.end(
            exitCode=result.exit_code, durationMs=result.duration_ms, timedOut=result.timed_out,
            stdoutBytes=len(result.stdout) + result.stdout_dropped_bytes,
            stderrBytes=len(result.stderr) + result.stderr_dropped_bytes,
        )  # fmt: skip


def failing(begun: Begun | None, call: Callable[[], T]) -> T:
    """The call; what it raises is its end."""
    try:
        return call()
    except DifferentlyError as error:
        if begun is not None:
            begun.end(error=error.code)
        raise


def followed(begun: Begun | None, events: Iterator[ExecEvent]) -> Iterator[ExecEvent]:
    """The events of a running command as they come; its end is logged however the stream ends."""
    if begun is None:
        yield from events
        return
    sizes = {"stdout": 0, "stderr": 0}
    facts: dict[str, Fact] = {"error": "reader_left"}
    try:
        for event in events:
            if isinstance(event, Output):
                sizes[event.stream] += len(event.data)
            if isinstance(event, Exit):
                facts = {"exitCode": event.exit_code, "durationMs": event.duration_ms, "timedOut": event.timed_out}
                sizes["stdout"] += event.stdout_dropped_bytes
                sizes["stderr"] += event.stderr_dropped_bytes
            yield event
    except DifferentlyError as error:
        facts = {"error": error.code}
        raise
    finally:
        begun.end(stdoutBytes=sizes["stdout"], stderrBytes=sizes["stderr"], **facts)
