"""Strict reading of bodies and query strings.

A field that we do not know, a wrong type, a key given twice or JSON that is too deep is refused with the place and the
rule. What was sent is never quoted: it may be a secret in the wrong place.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel, ValidationError

from differently_core.contract.nesting import nests_deeper
from differently_core.errors import InvalidRequest

M = TypeVar("M", bound=BaseModel)
JSON_BYTES_MAX = 4 * 1024 * 1024
JSON_DEPTH_MAX = 64
PROBLEMS_MAX = 10
NAME_SHOWN_MAX = 64
_SUBJECT = re.compile(r"^\w+ should ")
"""pydantic says `Input should be…`; the place names the subject already."""
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


def read_json(model: type[M], data: bytes) -> M:
    """The body as its model; an empty body is `{}`."""
    if not data.strip():
        data = b"{}"
    _check_json(data)
    try:
        # Only the names of the wire count, never the Python ones beside them.
        return model.model_validate_json(data, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        problem = _refusal(error, "body")
    raise problem


def _check_json(data: bytes) -> None:
    """What pydantic's own parser lets through: repeated keys, great depth, numbers that are none."""
    try:
        value = json.loads(data, object_pairs_hook=_unique, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, UnicodeError):
        problem = InvalidRequest("The body is not valid JSON in UTF-8.", field="body")
    except RecursionError:
        problem = _too_deep()
    else:
        if not isinstance(value, dict):
            problem = InvalidRequest("The body must be a JSON object, such as {}.", field="body")
        elif nests_deeper(value, JSON_DEPTH_MAX):
            problem = _too_deep()
        else:
            return
    raise problem


def _too_deep() -> InvalidRequest:
    return InvalidRequest(f"The body nests deeper than {JSON_DEPTH_MAX} levels; make it flatter.", field="body")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        name = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InvalidRequest(f"{_shown(name)}: is given twice in one object; send it once.", field=_shown(name))
    return found


def _no_number(text: str) -> float:
    raise InvalidRequest(f"{text} is not a JSON number.", field="body")


def _finite(text: str) -> float:
    number = float(text)
    if math.isfinite(number):
        return number
    raise InvalidRequest("A number in the body is too large.", field="body")


def read_query(model: type[M], given: Mapping[str, Sequence[str]]) -> M:
    """The query string as its model. A parameter that is not a list may be given once."""
    repeatable = _repeatable(model)
    values: dict[str, Any] = {}
    for name, texts in given.items():
        if any(_has_surrogate(text) for text in (name, *texts)):
            raise InvalidRequest(f"{_shown(name)}: is not valid UTF-8.", field=_shown(name))
        if name in repeatable:
            values[name] = list(texts)
        elif len(texts) == 1:
            values[name] = texts[0]
        else:
            raise InvalidRequest(f"{_shown(name)}: is given {len(texts)} times; send it once.", field=_shown(name))
    try:
        return model.model_validate(values, by_alias=True, by_name=False)
    except ValidationError as error:
        problem = _refusal(error, "query parameter")
    raise problem


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


@functools.cache
def _repeatable(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(
        field.alias or name for name, field in model.model_fields.items() if get_origin(field.annotation) is list
    )


def _refusal(error: ValidationError, what: str) -> InvalidRequest:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    problems = [_problem(entry["loc"], entry["type"], entry["msg"], what) for entry in found[:PROBLEMS_MAX]]
    first = _place(found[0]["loc"]) or "body"
    return InvalidRequest(f"{problems[0]}.", field=first, problems=problems)


def _problem(where: Sequence[int | str], kind: str, text: str, what: str) -> str:
    place = _place(where)
    if kind == "extra_forbidden":
        return f"{place}: there is no such {'field' if what == 'body' else what}; leave it out"
    if kind == "missing":
        return f"{place}: is required"
    rule = _SUBJECT.sub("must ", text.removeprefix("Value error, ")).rstrip(".")
    return f"{place or 'body'}: {rule[:1].lower()}{rule[1:]}"


def _place(where: Sequence[int | str]) -> str:
    """`resources.memoryMiB`, `args[3]`; a wrong key of a map is named like a field."""
    parts = [part for part in where if part != "[key]"]
    return "".join(f"[{part}]" if isinstance(part, int) else f".{_shown(part)}" for part in parts).removeprefix(".")


def _shown(name: str) -> str:
    """A name as it can stand in a message: short and printable."""
    return _UNPRINTABLE.sub("?", name[:NAME_SHOWN_MAX])
