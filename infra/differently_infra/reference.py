"""The written reference of `deployment.toml`, made from the models that read it.

python -m differently_infra.reference           write docs/reference/deployment.md
python -m differently_infra.reference --check   fail when what is written is not current
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, Final

from .configuration import FILE, described, sections
from .packaging import ROOT

PAGE: Final = ROOT / "docs" / "reference" / "deployment.md"
INTRODUCTION: Final = f"""<!-- Made from the code: python -m differently_infra.reference -->

# {FILE}

What a deployment may be told. Every key has a default, and a missing file is an installation with all of them. A key
that is not listed here is refused, and so is a value out of bounds, before anything is synthesized."""


def page() -> str:
    return "\n\n".join([INTRODUCTION, *_tables()]) + "\n"


def _tables() -> Iterator[str]:
    for name, section in sections():
        title = f"`[{name}]`" if name else "The top level"
        rows = [f"| `{key}` | {_shown(default)} | {text} |" for key, default, text in described(section)]
        yield "\n".join(
            [f"## {title}", "", str(section.__doc__), "", "| key | default | about |", "|---|---|---|", *rows]
        )


def _shown(default: Any) -> str:
    if default is None:
        return "none"
    return f"`{json.dumps(list(default) if isinstance(default, tuple) else default)}`"


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page():
            return 0
        print(f"{PAGE.name} is not current: run `python -m differently_infra.reference`", file=sys.stderr)
        return 1
    if arguments:
        print("usage: python -m differently_infra.reference [--check]", file=sys.stderr)
        return 2
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
