"""Commands in sandboxes: run one as if it ran here, or leave it there as a job."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from .._failure import ApiError, ConnectionFailed, DifferentlyError, StreamCut
from ..commands import BUFFERED_SECONDS_MAX, JOB_SECONDS_MAX, Command, Event, Exit, Output
from . import exits
from .failures import Wrong, note
from .output import Format, say, show
from .sandboxes import IdArgument, ImageOption, MemoryOption, TemplateOption
from .session import OutputOption, ProjectOption, connected, pairs, project_of
from .watching import Line

if TYPE_CHECKING:
    from .._sync.sandbox import Sandbox

jobs = typer.Typer(name="job", help="Commands that run in the background.", no_args_is_help=True)

WordsArgument = Annotated[
    list[str], typer.Argument(metavar="COMMAND...", help="One word is run by /bin/sh -c, several without a shell.")
]
CwdOption = Annotated[Optional[str], typer.Option("--cwd", "-C", help="The directory to run it in.")]
EnvOption = Annotated[
    Optional[list[str]], typer.Option("--env", "-e", metavar="NAME=VALUE", help="A variable; repeatable.")
]
StdinOption = Annotated[bool, typer.Option("--stdin", "-i", help="Give it what comes on standard input.")]
SecondsOption = Annotated[
    int, typer.Option("--timeout", metavar="SECONDS", min=1, max=JOB_SECONDS_MAX, help="End it after so long.")
]
LOST = (ApiError, ConnectionFailed, StreamCut)
RAW = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def command_of(words: list[str]) -> Command:
    """`--` may stand between our options and the command."""
    said = words[1:] if words[0] == "--" else words
    if not said:
        raise typer.BadParameter("There is no command after --.")
    return said[0] if len(said) == 1 else said


def exec_(
    id: IdArgument, words: WordsArgument, cwd: CwdOption = None, env: EnvOption = None, stdin: StdinOption = False,
    timeout: SecondsOption = 60,
) -> None:  # fmt: skip
    """Run a command. Its output comes as it is written, and its exit code is ours; 125 is a failure around it.

    Options go before the id. Ctrl-C stops a command that may take over 240 seconds; others run on in the sandbox.
    """
    with connected() as client:
        try:
            sandbox = client.sandboxes.get(id)
        except LOST as failed:
            raise Wrong(failed, exits.COMMAND_LOST) from None
        _run(sandbox, words, cwd, env, stdin, timeout)


def run(
    words: WordsArgument, template: TemplateOption = None, image: ImageOption = None, memory: MemoryOption = None,
    env: EnvOption = None, stdin: StdinOption = False, timeout: SecondsOption = 60, project: ProjectOption = None,
) -> None:  # fmt: skip
    """Run a command in a sandbox that is made for it and deleted after it."""
    with connected() as client:
        made = client.sandboxes.create(
            template=template, image=image, memory_mib=memory, project=project_of(client, project), wait=False
        )
        with made:
            with Line(made.id) as line:
                made.wait("running", on_progress=line.progress)
            _run(made, words, None, env, stdin, timeout)


def _run(
    sandbox: "Sandbox", words: list[str], cwd: Optional[str], env: Optional[list[str]], stdin: bool, timeout: int
) -> None:  # fmt: skip
    options: dict[str, Any] = {"cwd": cwd, "env": pairs(env or [], "variable") or None, "timeout_seconds": timeout}
    data = sys.stdin.buffer.read() if stdin else None
    try:
        if timeout > BUFFERED_SECONDS_MAX:
            code = _as_job(sandbox, words, data, options)
        else:
            events = sandbox.stream(command_of(words), stdin=data, **options)
            code = _streamed(sandbox, events, timeout)
    except LOST as failed:
        raise Wrong(failed, exits.COMMAND_LOST) from None
    raise typer.Exit(code)


def _streamed(sandbox: "Sandbox", events: Iterator[Event], timeout: int) -> int:
    try:
        return written(events, timeout)
    except KeyboardInterrupt:
        note(
            f"\ninterrupted: the command may run on in {sandbox.id}, for {timeout} s at most\n"
            f"  next: differently sandbox rm {sandbox.id}   ends it, and the sandbox with it"
        )
        raise


def _as_job(
    sandbox: "Sandbox", words: list[str], data: Optional[bytes], options: dict[str, Any]
) -> int:  # fmt: skip
    job = sandbox.jobs.start(command_of(words), stdin=data, **options)
    try:
        return written(job.events(), options["timeout_seconds"])
    except KeyboardInterrupt:
        try:
            note(f"\ninterrupted: job {job.id} is {job.stop().state}")
        except DifferentlyError:
            note(f"\ninterrupted: job {job.id} may run on; stop it: differently job stop {sandbox.id} {job.id}")
        raise


def written(events: Iterator[Event], timeout: int) -> int:
    """Each piece where it belongs, byte for byte, as it comes; the exit code."""
    end = Exit(exits.COMMAND_LOST)
    for event in events:
        if isinstance(event, Output):
            stream = sys.stderr if event.stream == "stderr" else sys.stdout
            stream.buffer.write(event.data)
            stream.buffer.flush()
        else:
            end = event
    if end.timed_out:
        note(f"the command was ended after {timeout} s; give it longer with --timeout")
    dropped = end.stdout_dropped_bytes + end.stderr_dropped_bytes
    if dropped:
        note(f"{dropped} bytes of output were dropped; write them to a file in the sandbox and copy that")
    return end.exit_code


@jobs.command("start")
def start_job(
    id: IdArgument, words: WordsArgument, cwd: CwdOption = None, env: EnvOption = None, stdin: StdinOption = False,
    timeout: SecondsOption = JOB_SECONDS_MAX,
    name: Annotated[Optional[str], typer.Option("--id", help="A name for it, which makes a repeat safe.")] = None,
    output: OutputOption = Format.table,
) -> None:  # fmt: skip
    """Start a command in the background and tell the job's id."""
    with connected() as client:
        job = client.sandboxes.get(id).jobs.start(
            command_of(words), id=name, cwd=cwd, env=pairs(env or [], "variable") or None,
            stdin=sys.stdin.buffer.read() if stdin else None, timeout_seconds=timeout,
        )  # fmt: skip
        if output is Format.table:
            say(job.id)
        else:
            show(job.info, output)


JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job.")]


@jobs.command("get")
def get_job(id: IdArgument, job: JobArgument, output: OutputOption = Format.table) -> None:
    """Show a job."""
    with connected() as client:
        show(client.sandboxes.get(id).jobs.get(job).info, output)


@jobs.command("logs")
def job_logs(id: IdArgument, job: JobArgument) -> None:
    """Write a job's output from its beginning, follow it to its end, and exit with its code."""
    with connected() as client:
        raise typer.Exit(written(client.sandboxes.get(id).jobs.get(job).events(), JOB_SECONDS_MAX))


@jobs.command("stop")
def stop_job(id: IdArgument, job: JobArgument) -> None:
    """End a job's processes. One that has ended stays as it ended."""
    with connected() as client:
        say(client.sandboxes.get(id).jobs.get(job).stop().state)


def add_to(app: typer.Typer) -> None:
    app.command("run", context_settings=RAW)(run)


def add_to_sandbox(app: typer.Typer) -> None:
    app.command("exec", context_settings=RAW)(exec_)
