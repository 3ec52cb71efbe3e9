"""JSON Schema and tables as Markdown, for the pages of the reference."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]


def about(entry: Schema) -> str:
    """What is said of a field, and its default."""
    default = entry.get("default")
    text = str(entry.get("description", ""))
    told = f"Default: `{json.dumps(default)}`." if default not in (None, {}, [], "") else ""
    return " ".join(part for part in (text, told) if part)


def type_of(schema: Schema) -> str:
    """Its type and bounds in words; objects are linked by name."""
    if "$ref" in schema:
        name = name_of(schema["$ref"])
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(type_of(option) for option in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = str(schema.get("type", "any JSON"))
    if kind == "array":
        return f"list of {type_of(schema['items'])}{_bounds(schema, 'Items')}"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"map of {type_of(values)}{_bounds(schema, 'Properties')}" if isinstance(values, Mapping) else "object"
    if schema.get("format") == "binary":
        return "bytes"
    if schema.get("format") == "date-time":
        return "time"
    return kind + _bounds(schema, "Length") + _range(schema)


def _bounds(schema: Schema, what: str) -> str:
    low, high = schema.get(f"min{what}"), schema.get(f"max{what}")
    unit = {"Items": "items", "Properties": "entries", "Length": "characters"}[what]
    if low is None and high is None:
        return ""
    if high is None:
        return f" of {low} {unit} or more"
    return f" of {low or 0} to {high} {unit}"


def _range(schema: Schema) -> str:
    words = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤"}
    told = [f"{sign} {schema[name]:,}" for name, sign in words.items() if name in schema]
    return f" {' and '.join(told)}" if told else ""


def name_of(ref: str) -> str:
    """`#/components/schemas/Pool` -> `Pool`."""
    return ref.rpartition("/")[2]


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )
