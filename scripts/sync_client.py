"""Writes the client without asyncio from the one with it, so that there is one source of what both do.

python scripts/sync_client.py            write clients/python/differently/_sync
python scripts/sync_client.py --check    fail when what is written is not current
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "clients" / "python" / "differently"
RUFF = Path(sys.executable).with_name("ruff")
WORDS = (
    (r"__aenter__", "__enter__"),
    (r"__aexit__", "__exit__"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"import AsyncIterator, Awaitable, ", "import AsyncIterator, "),
    (r"import Awaitable, ", "import "),
    (r"\b(_?)Async([A-Z]\w+)", r"\1\2"),
    (r"\baclose\b", "close"),
    (r"\baread\b", "read"),
    (r"\baiter_bytes\b", "iter_bytes"),
    (r"\basyncio\b", "time"),
)
MADE = "# Made from _async: python scripts/sync_client.py\n"


def without_asyncio(text: str) -> str:
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    head, _, rest = text.partition("\nfrom __future__")
    return f"{head}\n{MADE}\nfrom __future__{rest}" if rest else f"{text}\n{MADE}"


def modules() -> dict[str, str]:
    """Each module by its name, as it is to be written."""
    made = {path.name: without_asyncio(path.read_text("utf-8")) for path in sorted((PACKAGE / "_async").glob("*.py"))}
    made["__init__.py"] = f'"""The client for code without asyncio."""\n\n{MADE}'
    return {name: formatted(name, text) for name, text in made.items()}


def formatted(name: str, text: str) -> str:
    """With imports in order; a call that became shorter may fit on one line."""
    path = str(PACKAGE / "_sync" / name)
    for words in (["check", "--quiet", "--fix-only", "--select", "I"], ["format", "--quiet"]):
        run = subprocess.run(
            [RUFF, *words, "--stdin-filename", path, "-"], input=text, capture_output=True, text=True, check=True
        )
        text = run.stdout
    return text


def main(arguments: list[str]) -> int:
    folder = PACKAGE / "_sync"
    made = modules()
    stale = [name for name, text in made.items() if not _is_current(folder / name, text)]
    stale += [path.name for path in folder.glob("*.py") if path.name not in made]
    if "--check" in arguments:
        for name in stale:
            print(f"{folder / name} is not current: run python scripts/sync_client.py", file=sys.stderr)
        return 1 if stale else 0
    folder.mkdir(exist_ok=True)
    for name in stale:
        if name in made:
            (folder / name).write_text(made[name], encoding="utf-8")
        else:
            (folder / name).unlink()
    return 0


def _is_current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
