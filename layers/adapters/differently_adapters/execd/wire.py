"""execd's own JSON, as far as we read it."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError

from differently_core.errors import ProviderUnavailable

T = TypeVar("T")


class FileRead(BaseModel):
    """In snake case, and with a mode whose decimal digits are the octal ones."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    path: str
    type: str = "file"
    size: int
    mode: int = 0
    modified_at: datetime | None = None


def read(shape: type[T], body: JsonValue) -> T:
    """An answer as `shape`; another one is execd's fault, and whether the call had an effect is unknown."""
    try:
        return TypeAdapter(shape).validate_python(body)
    except ValidationError:  # its text quotes the answer, which may hold secrets
        pass
    raise ProviderUnavailable("execd answered something that is not of its API.")
