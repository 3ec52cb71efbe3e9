"""Which processes of this host belong to a sandbox, and ending them all.

A restarted control plane must find them too. So every command carries its sandbox's id in its environment, which
its children inherit, and each process group that was started has a file with the start time of its leader: a number
that was given to another process meanwhile has another start time and is left alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from differently_core.errors import ProviderUnavailable
from differently_core.runtime.clock import Clock

MARKER: Final = "SANDBOX_ID"
KILL_ROUNDS_MAX: Final = 200
KILL_PAUSE_SECONDS: Final = 0.01
_PROC: Final = Path("/proc")


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    group: int
    started: str
    zombie: bool


def record(folder: Path, group: int) -> None:
    """Remember a group before anything else can happen to its sandbox."""
    leader = _read(group)
    (folder / str(group)).write_text(leader.started if leader else "")


def forget(folder: Path, group: int) -> None:
    """The command ended; what it left running in its group keeps the file."""
    if not _group_lives(group):
        (folder / str(group)).unlink(missing_ok=True)


def end_all(folder: Path, sandbox: str, clock: Clock) -> None:
    """Kill every process of the sandbox; raises `ProviderUnavailable` when some will not go."""
    for _ in range(KILL_ROUNDS_MAX):
        found = _of_sandbox(folder, sandbox)
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        clock.sleep(KILL_PAUSE_SECONDS)  # more than one round: a process may have forked while we looked
    raise ProviderUnavailable(f"Processes of sandbox {sandbox} could not be ended.")


def _of_sandbox(folder: Path, sandbox: str) -> set[int]:
    if not _PROC.is_dir():
        return _recorded_groups_without_proc(folder)
    processes = [process for process in _all() if not process.zombie]
    marker = f"{MARKER}={sandbox}".encode()
    groups = _recorded_groups(folder, {process.pid: process for process in processes})
    ours = {process.pid for process in processes if process.group in groups or _has_marker(process.pid, marker)}
    return _with_descendants(ours, processes) - {os.getpid()}


def _recorded_groups(folder: Path, processes: dict[int, Process]) -> set[int]:
    groups = set()
    for group, started in _records(folder):
        leader = processes.get(group)
        if leader is not None and leader.started == started:
            groups.add(group)
    return groups


def _records(folder: Path) -> list[tuple[int, str]]:
    try:
        return [(int(path.name), path.read_text()) for path in folder.iterdir() if path.name.isdigit()]
    except FileNotFoundError:
        return []


def _recorded_groups_without_proc(folder: Path) -> set[int]:
    """Without /proc nothing tells a reused number from ours, so only groups of living leaders are ended, at once."""
    for group, _ in _records(folder):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        (folder / str(group)).unlink(missing_ok=True)
    return set()


def _with_descendants(roots: set[int], processes: list[Process]) -> set[int]:
    """A child may have cleared its environment; its parent gives it away."""
    found = set(roots)
    while True:
        more = {process.pid for process in processes if process.parent in found} - found
        if not more:
            return found
        found |= more


def _all() -> list[Process]:
    found = (_read(int(name)) for name in os.listdir(_PROC) if name.isdigit())
    return [process for process in found if process is not None]


def _read(pid: int) -> Process | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name in parentheses may hold anything, so fields count from its last closing one: state is field 3.
    fields = text.rpartition(")")[2].split()
    return Process(
        pid=pid,
        parent=int(fields[1]),
        group=int(fields[2]),
        started=fields[19],
        zombie=fields[0] in {"Z", "X"},
    )


def _has_marker(pid: int, marker: bytes) -> bool:
    try:
        return marker in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:  # another user's, or gone
        return False


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
