"""One line for each event on stderr: for a person here, or the deployed JSON for a program."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime
from typing import Any, Literal

from differently_core.runtime import telemetry

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        source = record.name.removeprefix("differently_").removeprefix("differently.")
        # What was given as `extra`, without what is not known.
        facts = [(name, value) for name, value in vars(record).items() if name not in _STANDARD and value is not None]
        said = "".join(f" {name}={_shown(value)}" for name, value in facts)
        line = f"{at} {record.levelname.lower():7} {source}: {record.getMessage()}{said}"
        if record.exc_info is None or record.exc_info[1] is None:
            return line
        return "\n".join([line, *_causes(record.exc_info[1])])


def _causes(error: BaseException) -> list[str]:
    """As in the JSON: types and places, because a text may quote a secret."""
    return [f"    {cause['type']} at {' < '.join(reversed(cause['frames']))}" for cause in telemetry.described(error)]


def _shown(value: Any) -> str:
    """A value on one line: what has spaces or control characters is quoted."""
    text = str(value)
    return text if text.isprintable() and " " not in text and text else json.dumps(text)


def configure(form: Literal["text", "json"], level: str) -> None:
    telemetry.configure("local", level=level, stream=sys.stderr)
    if form == "text":
        for handler in logging.getLogger().handlers:
            handler.setFormatter(TextFormatter())
