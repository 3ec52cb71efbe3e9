"""Names of what a backend can do; the vocabulary of capabilities."""

from __future__ import annotations

EXEC = "exec"
EXEC_STREAM = "exec.stream"
FILES = "files"
STOP_START = "lifecycle.stop-start"
PERSISTENCE_DISK = "persistence.disk"
PAUSE_RESUME = "lifecycle.pause-resume"
SNAPSHOTS_DISK = "snapshots.disk"
SNAPSHOTS_MEMORY = "snapshots.memory"
FORK = "fork"
PORTS_EXPOSE = "ports.expose"
EGRESS_CONTROL = "network.egress-control"
ISOLATION_NONE = "isolation.none"

KNOWN = frozenset(
    {
        EXEC, EXEC_STREAM, FILES, STOP_START, PERSISTENCE_DISK, PAUSE_RESUME, SNAPSHOTS_DISK, SNAPSHOTS_MEMORY, FORK,
        PORTS_EXPOSE, EGRESS_CONTROL, ISOLATION_NONE, "ssh", "pty", "gpu", "arch.amd64", "arch.arm64",
        "isolation.microvm", "isolation.container",
    }
)  # fmt: skip
REQUESTABLE = KNOWN - {ISOLATION_NONE}
"""What a caller may ask for: nobody can ask to be unprotected."""
