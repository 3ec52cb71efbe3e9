"""Commands and files as callers and adapters both see them: one shape for both layers."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from .record import Wire

EXEC_SECONDS_MAX_BUFFERED = 240
EXEC_SECONDS_MAX_STREAMED = 870
EXEC_SECONDS_MAX_JOB = 8_100
EXEC_SECONDS_DEFAULT = 60
OUTPUT_BYTES_MAX = 1_048_576
"""Kept of each stream of a buffered command: the first and the last half; the middle is dropped and counted."""
STDIN_BYTES_MAX = 1_048_576
FILE_BYTES_MAX_INLINE = 4 * 1024 * 1024
FILE_BYTES_MAX = 100 * 1024 * 1024
JOB_OUTPUT_BYTES_MAX = 1_048_576
"""Returned of each stream by one read of a job's output; the cursor says where to go on."""
JOB_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
EXIT_TIMEOUT = 124
"""Exit code of a command that its timeout ended, as timeout(1) has it."""

EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,254}$")]
EnvValue = Annotated[str, Field(max_length=32_768, pattern=r"^[^\x00]*$")]


class Encoding(StrEnum):
    UTF8 = "utf-8"
    """Bytes that are not UTF-8 become U+FFFD."""
    BASE64 = "base64"
    """Lossless."""


class ExecRequest(Wire):
    """`command` runs by `/bin/sh -c`, `args` without a shell: exactly one of them.

    No `stdin` means closed input. The timeout kills the process group and gives exit code 124.
    """

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["command"]}, {"required": ["args"]}]})

    command: Annotated[str, Field(min_length=1, max_length=131_072, pattern=r"^[^\x00]*$")] | None = None
    args: (
        Annotated[
            list[Annotated[str, Field(max_length=131_072, pattern=r"^[^\x00]*$")]], Field(min_length=1, max_length=1024)
        ]
        | None
    ) = None
    env: Annotated[dict[EnvName, EnvValue], Field(max_length=256)] = {}
    cwd: Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")] | None = None
    stdin: Annotated[str, Field(max_length=STDIN_BYTES_MAX)] | None = None
    timeout_seconds: Annotated[int, Field(ge=1, le=EXEC_SECONDS_MAX_JOB)] = EXEC_SECONDS_DEFAULT
    encoding: Encoding = Encoding.UTF8

    @model_validator(mode="after")
    def _one_of_command_and_args(self) -> Self:
        if (self.command is None) == (self.args is None):
            raise ValueError("give exactly one of command and args")
        return self

    def argv(self) -> list[str]:
        return list(self.args) if self.args is not None else ["/bin/sh", "-c", self.command or ""]

    def __repr__(self) -> str:
        return f"ExecRequest(timeout_seconds={self.timeout_seconds}, <command, env and stdin withheld>)"

    __str__ = __repr__


class ExecResult(Wire):
    """A finished command. A non-zero exit code is a result, not an error."""

    exit_code: int
    stdout: str
    stderr: str
    duration_ms: int
    truncated: bool = False
    stdout_dropped_bytes: int = 0
    stderr_dropped_bytes: int = 0
    timed_out: bool = False
    encoding: Encoding = Encoding.UTF8


Stream = Literal["stdout", "stderr"]


class JobState(StrEnum):
    RUNNING = "running"
    EXITED = "exited"
    """The command ended by itself."""
    STOPPED = "stopped"
    """Stopped on request."""
    TIMED_OUT = "timed_out"
    LOST = "lost"
    """Its processes are gone and no exit was recorded (out of memory, a restart): never reported as success."""


class Job(Wire):
    id: str
    state: JobState
    exit_code: int | None = None
    started_at: datetime | None = None
    stdout_bytes: int = 0
    stderr_bytes: int = 0


class FileInfo(Wire):
    name: str
    path: str
    size: int
    is_dir: bool
    mode: str
    modified_at: datetime | None = None
