"""The one text of an event that is hashed. Whoever has an event can make it again, in any language.

It is JSON by the rules of RFC 8785 for what events hold: objects, texts, whole numbers, true, false and null. Members
are sorted by their names' UTF-16 code units, there is no white space, texts carry only the escapes that JSON demands.
Names are those of the API (camelCase); a field that has its default is left out, so a field that is added to events one
day changes no hash of before. `at` has six digits of a second and `Z` (docs/how-to/verify-the-audit-log.md).
"""

from __future__ import annotations

import json
from datetime import datetime

from ..model.due import stamp
from ..model.event import Event
from ..model.record import camel

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
Value = str | int | bool | None


def document(event: Event) -> dict[str, object]:
    """The fields that are hashed, by their names in the API."""
    kept: dict[str, object] = {}
    for name, field in type(event).model_fields.items():
        value = getattr(event, name)
        if not field.is_required() and value == field.default:
            continue
        kept[camel(name)] = stamp(value) if isinstance(value, datetime) else value
    return kept


def canonical(event: Event) -> bytes:
    return _ENCODER.encode(_sorted(document(event))).encode()


def _sorted(value: object) -> object:
    if not isinstance(value, dict):
        return value
    return {name: _sorted(value[name]) for name in sorted(value, key=lambda name: name.encode("utf-16-be"))}
