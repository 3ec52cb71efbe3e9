"""Objects of the API as typed, frozen Python objects that a newer server cannot break.

Fields that this version does not know are kept in `to_dict()` and otherwise ignored; a word that it does not know is
that word; what is absent is None, or empty. Classes are plain, because making eighty dataclasses would take most of the
start of a command line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, ClassVar, TypeVar

M = TypeVar("M", bound="Model")
SECRETS = frozenset({"token", "value", "url", "secret"})
"""Fields that give access to something; representations leave their values out."""


class Model:
    """Base of all objects of the API."""

    _names: ClassVar[dict[str, str]] = {}
    """Names on the wire that are not the field's own in camelCase."""
    _wire: dict[str, Any]

    @classmethod
    def from_dict(cls: type[M], wire: Mapping[str, Any]) -> M:
        """From the API's JSON."""
        made = cls.__new__(cls)
        fields = made.__dict__
        fields["_wire"] = dict(wire)
        for field, annotation in _annotations(cls):
            value = wire.get(cls._names.get(field) or camel(field))
            if value is not None:
                fields[field] = _decoded(cls, annotation, value)
            elif not hasattr(cls, field):
                fields[field] = _absent(cls, annotation)
        return made

    def to_dict(self) -> dict[str, Any]:
        """The API's own JSON, with everything that the server sent."""
        return dict(self._wire)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is what the server said and cannot be changed")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._wire == self._wire

    def __hash__(self) -> int:
        return hash((type(self), repr(self)))

    def __repr__(self) -> str:
        shown = (
            f"{field}={'…' if field in SECRETS else repr(value)}"
            for field, value in self.__dict__.items()
            if field != "_wire" and value not in (None, [], {})
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def _annotations(cls: type[Model]) -> Iterator[tuple[str, str]]:
    """Fields in the order of the class. Annotations are text, because the modules are compiled so."""
    for base in reversed(cls.__mro__):
        for field, annotation in vars(base).get("__annotations__", {}).items():
            if not field.startswith("_"):
                yield field, annotation


def _decoded(cls: type[Model], annotation: str, value: Any) -> Any:
    name = annotation[: -len(" | None")] if annotation.endswith(" | None") else annotation
    if name.startswith("list[") and isinstance(value, list):
        return [_decoded(cls, name[len("list[") : -1], item) for item in value]
    if name.startswith("dict[str, ") and isinstance(value, Mapping):
        return {key: _decoded(cls, name[len("dict[str, ") : -1], item) for key, item in value.items()}
    if name == "datetime" and isinstance(value, str):
        return moment(value)
    kind = getattr(sys.modules[cls.__module__], name, None)
    if isinstance(kind, type) and issubclass(kind, Model) and isinstance(value, Mapping):
        return kind.from_dict(value)
    return value


def _absent(cls: type[Model], annotation: str) -> Any:
    if annotation.endswith(" | None"):
        return None
    if annotation.startswith("list["):
        return []
    if annotation.startswith("dict["):
        return {}
    kind = getattr(sys.modules[cls.__module__], annotation, None)
    return kind.from_dict({}) if isinstance(kind, type) and issubclass(kind, Model) else None


def moment(text: str) -> datetime | str:
    """A time in UTC; what is no time stays as it is. Python before 3.11 reads neither `Z` nor odd fractions."""
    plain = re.sub(r"\.(\d+)", lambda match: "." + match[1][:6].ljust(6, "0"), text.replace("Z", "+00:00"), count=1)
    try:
        return datetime.fromisoformat(plain)
    except ValueError:
        return text


def camel(field: str) -> str:
    """`ttl_seconds` -> `ttlSeconds`."""
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)
