"""Configuration of pools by what each kind publishes: a JSON Schema is a list of fields. No kind is named here.

A field is given as `--set NAME=VALUE`; a value is read as the field's type says, and lists and objects as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer

from .session import pairs

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Field:
    """One field of a pool's `config`."""

    name: str
    type: str
    required: bool
    default: Any
    about: str
    choices: tuple[str, ...] = ()

    def value(self, text: str) -> Any:
        """What was typed, as this field takes it."""
        if self.choices and text not in self.choices:
            raise typer.BadParameter(f"{self.name} is one of {', '.join(self.choices)}, not {text!r}.")
        if self.type == "string" or self.choices:
            return text
        if self.type == "boolean":
            if text.lower() not in ("true", "false"):
                raise typer.BadParameter(f"{self.name} is true or false, not {text!r}.")
            return text.lower() == "true"
        try:
            found = json.loads(text)
        except ValueError:
            raise self._no_json(text) from None
        if self.type in ("integer", "number") and (isinstance(found, bool) or not isinstance(found, (int, float))):
            raise self._no_json(text)
        return found

    def _no_json(self, text: str) -> Exception:
        what = self.type if self.type in ("integer", "number") else f"{self.type} as JSON"
        return typer.BadParameter(f"{self.name} is of type {what}, which {text!r} is not.")


def fields(schema: Schema) -> list[Field]:
    """In the order of the schema, those that must be given first."""
    required = set(schema.get("required", []))
    found = [_field(name, entry, name in required, schema) for name, entry in schema.get("properties", {}).items()]
    return sorted(found, key=lambda field: not field.required)


def _field(name: str, entry: Schema, required: bool, whole: Schema) -> Field:
    options = [_followed(option, whole) for option in entry.get("anyOf", [entry])]
    told = [option for option in options if option.get("type") != "null"]
    types = list(dict.fromkeys(str(option.get("type", "any")) for option in told))
    choices = tuple(
        str(value) for option in told for value in option.get("enum", [option["const"]] if "const" in option else [])
    )
    about = str(entry.get("description") or _followed(entry, whole).get("description") or entry.get("title") or "")
    return Field(
        name, types[0] if len(types) == 1 else "any", required, entry.get("default"), " ".join(about.split()), choices
    )


def _followed(entry: Schema, whole: Schema) -> Schema:
    """A schema may keep its parts in `$defs`."""
    found: Any = entry
    for _ in range(8):
        ref = found.get("$ref") or next((part.get("$ref") for part in found.get("allOf", [])), None)
        if not ref:
            break
        found = whole.get("$defs", {}).get(ref.rpartition("/")[2], {})
    return found if isinstance(found, Mapping) else {}


def config_of(
    schema: Schema, given: Sequence[str], base: Mapping[str, Any] | None = None, *, ask: bool = True
) -> dict[str, Any]:
    """The `config` that was given; what must be there and is not is asked for, if somebody is at the terminal."""
    known = {field.name: field for field in fields(schema)}
    config: dict[str, Any] = dict(base or {})
    for name, text in pairs(given, "field").items():
        field = known.get(name)
        if field is None:
            raise typer.BadParameter(f"There is no field {name!r}; there are: {', '.join(known) or 'none'}.")
        config[name] = field.value(text)
    missing = [field for field in known.values() if field.required and field.name not in config]
    if missing and not (ask and sys.stdin.isatty()):
        raise typer.BadParameter(f"Missing: {', '.join(f'--set {field.name}=…' for field in missing)}.")
    for field in missing:
        config[field.name] = field.value(str(typer.prompt(f"{field.name} ({field.about or field.type})", err=True)))
    return config


def rows(schema: Schema) -> Iterator[dict[str, Any]]:
    """For a table of what a kind asks for."""
    for field in fields(schema):
        default = None if field.required else json.dumps(field.default)
        kind = " or ".join(field.choices) if field.choices else field.type
        yield {"field": field.name, "type": kind, "required": field.required, "default": default, "about": field.about}
