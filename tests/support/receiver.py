"""The receiver of the how-to as a process of its own: started, killed and started again on the same files."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "webhooks.md"
START_SECONDS_MAX = 20.0


class ReceiverProcess:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        found = re.search(r"cat > receiver.py <<'EOF'\n(.*?)\nEOF\n", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        assert found is not None
        (folder / "receiver.py").write_text(found[1], encoding="utf-8")
        (folder / "secrets.txt").write_text("", encoding="utf-8")

    def start(self) -> str:
        """Its URL, which is the same after each start."""
        told = self._folder / "receiver.url"
        told.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "receiver.py", str(self._port)], cwd=self._folder, stdout=subprocess.DEVNULL
        )
        end = time.monotonic() + START_SECONDS_MAX
        while not (told.exists() and told.read_text()):
            assert self._process.poll() is None, "the receiver ended by itself"
            assert time.monotonic() < end, "the receiver does not listen"
            time.sleep(0.02)
        url = told.read_text()
        self._port = int(url.split(":")[2].split("/")[0])
        return url

    def knows(self, *secrets: str) -> None:
        (self._folder / "secrets.txt").write_text("\n".join(secrets), encoding="utf-8")

    def kill(self) -> None:
        """Without a warning, in the middle of whatever it does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def events(self) -> list[Any]:
        """Everything that it has written down."""
        with sqlite3.connect(self._folder / "events.db") as kept:
            rows = kept.execute("SELECT body FROM events ORDER BY id").fetchall()
        kept.close()
        return [json.loads(body) for (body,) in rows]
