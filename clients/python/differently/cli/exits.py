"""Exit codes. `sandbox exec` and `run` give the remote command's own; theirs for a failure of ours is COMMAND_LOST."""

from __future__ import annotations

from .._failure import ConfigurationError, ConnectionFailed, SandboxEnded, SnapshotFailed, WaitTimeout

OK = 0
FAILED = 1
USAGE = 2
UNREACHED = 3
NOT_THERE = 4
COMMAND_LOST = 125
INTERRUPTED = 130
MEANINGS = {
    OK: "done",
    FAILED: "the API refused, or something else failed; stderr says what and what to do",
    USAGE: "the command line is wrong, or no server and key were named",
    UNREACHED: "the server did not answer, or not whole",
    NOT_THERE: "what was waited for did not come, in time or at all",
    COMMAND_LOST: "`sandbox exec`, `run`: not the command's own exit code but a failure before or around it",
    INTERRUPTED: "interrupted by Ctrl-C",
}


def of(failure: BaseException) -> int:
    if isinstance(failure, ConfigurationError):
        return USAGE
    if isinstance(failure, ConnectionFailed):
        return UNREACHED
    if isinstance(failure, (WaitTimeout, SandboxEnded, SnapshotFailed)):
        return NOT_THERE
    return FAILED
