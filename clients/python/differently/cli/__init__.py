"""The command line. What it needs beyond the client comes with the extra `cli`."""

from __future__ import annotations

import sys

NEEDED = ("typer", "rich", "yaml", "click")


def main() -> None:
    """The program `differently`."""
    try:
        from .program import run
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in NEEDED:
            raise
        print(
            f"differently: the command line needs {missing.name}, which is not installed.\n"
            "  next: pip install 'differently-sandbox[cli]'  (from a checkout: pip install './clients/python[cli]')",
            file=sys.stderr,
        )
        sys.exit(2)
    sys.exit(run(sys.argv[1:]))
