"""A real shell for backends that stand in for a machine: one directory of this host for each instance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from differently_core.contract import CommandResult, ExecEvent
from differently_core.model.exec import ExecRequest
from differently_core.runtime.clock import Clock

from ..processes import Command, EventStream, NotStarted, Running, run, start

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class HostShell:
    """`seconds_max` bounds every command in real time, whatever its own timeout says."""

    root: Path
    clock: Clock
    seconds_max: float = 60.0

    def home(self, name: str) -> Path:
        home = self.root / name
        home.mkdir(parents=True, exist_ok=True)
        return home

    def run(self, name: str, env: Mapping[str, str], request: ExecRequest, output_bytes_max: int) -> CommandResult:
        return run(self._start(name, env, request), output_bytes_max)

    def stream(
        self, name: str, env: Mapping[str, str], request: ExecRequest, quiet_seconds: float
    ) -> Iterator[ExecEvent]:
        return EventStream(self._start(name, env, request), quiet_seconds, lambda: None)

    def _start(self, name: str, env: Mapping[str, str], request: ExecRequest) -> Running | NotStarted:
        home = self.home(name)
        command = Command(
            argv=request.argv(),
            env={"PATH": PATH, "HOME": str(home), "LANG": "C.UTF-8", **env, **request.env},
            cwd=str(home / (request.cwd or ".")),
            stdin=None if request.stdin is None else request.stdin.encode(),
            timeout_seconds=min(self.seconds_max, request.timeout_seconds),
        )
        return start(command, self.clock)
