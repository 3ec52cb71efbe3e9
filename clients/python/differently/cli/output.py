"""Results on stdout: aligned columns for people, JSON or YAML for programs. A list is a list, also an empty one."""

from __future__ import annotations

import enum
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, TextIO

from .._model import Model

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f]")
COLOURS = {"red": "31", "green": "32", "yellow": "33", "dim": "2", "bold": "1"}
GOOD = ("running", "ready", "active", "healthy", "place", "open")
BAD = ("failed", "broken", "reject", "unhealthy")
Column = tuple[str, str]
"""Its heading, and the dotted path to its value in the API's own JSON."""


class Format(str, enum.Enum):
    """How results are written."""

    table = "table"
    json = "json"
    yaml = "yaml"


def coloured(stream: TextIO) -> bool:
    """On a terminal, unless NO_COLOR says otherwise."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, colour: str, stream: TextIO) -> str:
    return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m" if coloured(stream) else text


def plain(text: str) -> str:
    """Text that others wrote, without what would steer a terminal."""
    return _CONTROL.sub("\ufffd", text)


def show_list(items: Iterable[Model | Mapping[str, Any]], format: Format, columns: Sequence[Column]) -> None:
    found = [_document(item) for item in items]
    if format is not Format.table:
        _print_document(found, format)
        return
    rows = [[_cell(_at(item, path)) for _, path in columns] for item in found]
    _print_table([heading for heading, _ in columns], rows)


def show(item: Model | Mapping[str, Any], format: Format, columns: Sequence[Column] | None = None) -> None:
    """One object: its fields a line each, or as they came."""
    found = _document(item)
    if format is not Format.table:
        _print_document(found, format)
        return
    pairs = [(heading, _at(found, path)) for heading, path in columns] if columns else list(_flat(found))
    told = [(name, _cell(value)) for name, value in pairs if value not in (None, [], {})]
    width = max((len(name) for name, _ in told), default=0)
    for name, value in told:
        print(f"{styled(name.ljust(width), 'dim', sys.stdout)}  {_toned(value)}")


def say(text: str) -> None:
    """A result that is one line, in one piece: several processes may write to one pipe."""
    sys.stdout.write(f"{plain(text)}\n")


def _document(item: Model | Mapping[str, Any]) -> dict[str, Any]:
    return item.to_dict() if isinstance(item, Model) else dict(item)


def _print_document(found: Any, format: Format) -> None:
    if format is Format.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        import yaml

        print(yaml.safe_dump(found, sort_keys=False, allow_unicode=True), end="")


def _print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Nothing is cut: an id that is cut is no id."""
    widths = [max(len(row[at]) for row in [list(headings), *rows]) for at in range(len(headings))]
    print(styled(_row(headings, widths), "bold", sys.stdout))
    for row in rows:
        padded = [cell.ljust(width) for cell, width in zip(row, widths)]
        print("  ".join(_toned(cell) for cell in padded).rstrip())


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip()


def _toned(cell: str) -> str:
    word = cell.strip()
    colour = "green" if word in GOOD else "red" if word in BAD else None
    return styled(cell, colour, sys.stdout) if colour else cell


def _at(found: Mapping[str, Any], path: str) -> Any:
    value: Any = found
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _flat(found: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in found.items():
        if isinstance(value, Mapping) and value and all(not isinstance(inner, list) for inner in value.values()):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return plain(", ".join(f"{name}={_cell(inner)}" for name, inner in value.items())) or "-"
    if isinstance(value, list):
        return plain(", ".join(_cell(inner) for inner in value)) or "-"
    return plain(str(value).replace("\n", " "))


def age(created: str | None, now: datetime | None = None) -> str:
    """How long ago, in the largest unit that says something."""
    from .._model import moment

    then = moment(created) if created else None
    if not isinstance(then, datetime):
        return "-"
    seconds = max(0, int(((now or datetime.now(timezone.utc)) - then).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
