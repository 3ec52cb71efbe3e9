"""Logs: one JSON object a line, on the standard library's logging, the same in every entry point.

Modules log with `logging.getLogger(__name__)` and put facts in `extra`. An exception is written as its type and the
places it passed through, never its text: the text of a foreign exception may quote a request, a URL or a credential.
"""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime
from typing import IO, Any, Final

VALUE_CHARACTERS_MAX: Final = 2_000
FRAMES_MAX: Final = 20
CAUSES_MAX: Final = 5
_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_CHATTY: Final = ("botocore", "boto3", "urllib3", "httpx", "httpcore", "pynamodb")
"""They write a line, with its URL, for every call that they make."""


class JsonFormatter(logging.Formatter):
    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "service": self._service,
            "logger": record.name,
            "message": _short(record.getMessage()),
        }
        line.update((name, _plain(value)) for name, value in record.__dict__.items() if name not in _STANDARD)
        if record.exc_info and record.exc_info[1] is not None:
            line["exception"] = described(record.exc_info[1])
        # Escaped beyond ASCII: some readers of lines take U+2028 and others for an end of line.
        return json.dumps(line, separators=(",", ":"))


def described(error: BaseException) -> list[dict[str, Any]]:
    """An exception and its causes: types and places, without their texts."""
    found: list[dict[str, Any]] = []
    cause: BaseException | None = error
    while cause is not None and len(found) < CAUSES_MAX:
        frames = traceback.extract_tb(cause.__traceback__)[-FRAMES_MAX:]
        where = [f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames]
        found.append({"type": f"{type(cause).__module__}.{type(cause).__qualname__}", "frames": where})
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return found


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, (bool, int, float)) else _short(str(value))


def _short(text: str) -> str:
    return text if len(text) <= VALUE_CHARACTERS_MAX else f"{text[:VALUE_CHARACTERS_MAX]}…"


def configure(service: str, *, level: str = "INFO", stream: IO[str] | None = None) -> None:
    """Make the root logger write JSON lines; called once by an entry point, never at import."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter(service))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
