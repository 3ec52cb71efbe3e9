"""One line for each event on stderr: for a person, or as JSON for a program."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_QUIET = ("botocore", "urllib3", "boto3", "pynamodb", "httpx", "httpcore")


def facts(record: logging.LogRecord) -> dict[str, Any]:
    """What was given as `extra`, without what is not known."""
    return {
        name: value for name, value in vars(record).items() if name not in _STANDARD and value is not None
    }  # fmt: skip


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        source = record.name.removeprefix("differently_").removeprefix("differently.")
        said = " ".join(f"{name}={_shown(value)}" for name, value in facts(record).items())
        line = f"{at} {record.levelname.lower():7} {source}: {record.getMessage()}{' ' if said else ''}{said}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _shown(value: Any) -> str:
    """A value on one line: what has spaces or control characters is quoted."""
    text = str(value)
    return text if text.isprintable() and " " not in text and text else json.dumps(text)


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "timestamp": at, "level": record.levelname, "logger": record.name, "message": record.getMessage(),
            **facts(record),
        }  # fmt: skip
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure(form: Literal["text", "json"], level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
