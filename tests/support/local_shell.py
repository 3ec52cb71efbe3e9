"""A shell of this host for what is sent into sandboxes, run by each of the shells that sandboxes have."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

SHELLS: dict[str, list[str]] = {
    name: words
    for name, words in {"sh": ["/bin/sh"], "bash": ["bash"], "busybox": ["busybox", "sh"]}.items()
    if shutil.which(words[0])
}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class LocalShell:
    """Commands start in `home`. `heard` cuts what is heard of a script after so many bytes; the script runs on."""

    def __init__(self, root: Path, words: Sequence[str] = ("/bin/sh",), **env: str) -> None:
        self.home = root / "home"
        self.tmp = root / "tmp"
        self.home.mkdir(parents=True, exist_ok=True)
        self.tmp.mkdir(exist_ok=True)
        self.env = {"PATH": PATH, "HOME": str(self.home), "TMPDIR": str(self.tmp), "LANG": "C.UTF-8", **env}
        self.words = list(words)
        self.scripts: list[str] = []
        self.heard: int | None = None

    @contextmanager
    def open(self, script: str, seconds: float) -> Iterator[Iterator[bytes]]:
        self.scripts.append(script)
        with subprocess.Popen(
            [*self.words, "-c", script], cwd=self.home, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            output = process.stdout
            if self.heard is None:
                yield iter(lambda: output.read1(65_536), b"")  # type: ignore[attr-defined]
            else:
                yield iter([output.read()[: self.heard]])

    def put(self, path: str, data: bytes) -> None:
        Path(path).write_bytes(data)
