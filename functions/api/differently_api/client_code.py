"""What the Python client has of this API's description: a class for each object that answers hold, one for each error.

The client imports nothing of the server, so these two modules are written into it, by the same command that writes the
reference: a route or a field that is new here is known there, and a test fails while it is not.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from keyword import iskeyword
from typing import Any

from differently_core import errors
from differently_core.errors import REACTIONS, DifferentlyError

from .openapi import document
from .routes import ROUTES

Schema = Mapping[str, Any]
MADE = "# Made from the API's description: python -m differently_api.reference docs/reference"
CLIENT = "../../clients/python/differently"
SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
WIDTH = 120
PAGE_FIELDS = {"items", "nextCursor", "unsealed"}


def modules() -> dict[str, str]:
    """Each module by its file name, as seen from the reference's folder."""
    return {f"{CLIENT}/models.py": _models(document(ROUTES, "v1")), f"{CLIENT}/_codes.py": _codes()}


def _models(described: Schema) -> str:
    schemas: Mapping[str, Schema] = described["components"]["schemas"]
    names = sorted(name for name in _answered(described) if schemas[name].get("type") == "object")
    kept = [name for name in names if not _is_page(schemas[name])]
    parts = [
        f'"""The objects of the API, as answers hold them; docs/reference/api.md describes each."""\n\n{MADE}',
        "from __future__ import annotations",
        "from datetime import datetime\nfrom typing import Any, ClassVar",
        "from ._model import Model",
    ]
    head = "\n\n".join(parts)
    return head + "\n\n\n" + "\n\n\n".join(_model(name, schemas) for name in kept) + "\n"


def _is_page(schema: Schema) -> bool:
    """Pages are walked by the client itself."""
    fields = set(schema["properties"])
    return "items" in fields and fields <= PAGE_FIELDS


def _answered(described: Schema) -> set[str]:
    """Names of the schemas that a successful answer can hold."""
    found: set[str] = set()
    for methods in described["paths"].values():
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                if status.startswith("2"):
                    _reach(answer.get("content", {}), described["components"]["schemas"], found)
    return found - {"ErrorBody", "ErrorDetail", "OpenApiDocument", "OutputLine", "EndLine"}


def _reach(part: object, schemas: Mapping[str, Schema], found: set[str]) -> None:
    if isinstance(part, Mapping):
        name = str(part.get("$ref", "")).rpartition("/")[2]
        if name and name not in found:
            found.add(name)
            _reach(schemas[name], schemas, found)
        for key, value in part.items():
            if key not in ("example", "examples", "default"):
                _reach(value, schemas, found)
    elif isinstance(part, list):
        for value in part:
            _reach(value, schemas, found)


def _model(name: str, schemas: Mapping[str, Schema]) -> str:
    schema = schemas[name]
    lines = [f"class {name}(Model):", *_doc(schema.get("description", ""), "    ")]
    if schema.get("description"):
        lines.append("")
    fields = {_snake(wire): (wire, entry) for wire, entry in schema.get("properties", {}).items()}
    odd = {field: wire for field, (wire, _) in fields.items() if _camel(field) != wire}
    if odd:
        told = ", ".join(f'"{field}": "{wire}"' for field, wire in odd.items())
        lines += _fitted(f"    _names: ClassVar[dict[str, str]] = {{{told}}}", odd)
    for field, (_, entry) in fields.items():
        default = entry.get("default")
        told = f" = {_literal(default)}" if isinstance(default, str | int | float | bool) else ""
        lines.append(f"    {field}: {_type(entry, schemas)}{told}")
        lines += _doc(_about(entry, schemas), "    ")
    return "\n".join(lines)


def _fitted(line: str, odd: Mapping[str, str]) -> list[str]:
    if len(line) <= WIDTH:
        return [line]
    head = line.partition("{")[0]
    return [head + "{", *(f'        "{field}": "{wire}",' for field, wire in odd.items()), "    }"]


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _about(entry: Schema, schemas: Mapping[str, Schema]) -> str:
    """The field's own words, and the values that are known today."""
    options = [entry, *entry.get("anyOf", []), entry.get("items", {})]
    referred = [schemas[option["$ref"].rpartition("/")[2]] for option in options if "$ref" in option]
    values = next((option["enum"] for option in (*options, *referred) if "enum" in option), None)
    told = [str(entry.get("description", "")).strip()]
    if values:
        told.append("One of " + ", ".join(f"`{value}`" for value in values) + "; a newer server may know more.")
    return " ".join(part for part in told if part)


def _doc(text: str, indent: str) -> list[str]:
    text = " ".join(text.split())
    if not text:
        return []
    line = f'{indent}"""{text}"""'
    if len(line) <= WIDTH:
        return [line]
    wrapped = textwrap.wrap(text, WIDTH - len(indent) - 3, break_long_words=False, break_on_hyphens=False)
    return [f'{indent}"""{wrapped[0]}', *(f"{indent}{rest}" for rest in wrapped[1:]), f'{indent}"""']


def _type(entry: Schema, schemas: Mapping[str, Schema]) -> str:
    if "$ref" in entry:
        name = str(entry["$ref"]).rpartition("/")[2]
        target = schemas[name]
        if target.get("type") == "object":
            return name
        return _type(target, schemas) if target.get("type") else "Any"
    if "anyOf" in entry:
        options = [_type(option, schemas) for option in entry["anyOf"] if option.get("type") != "null"]
        return f"{options[0]} | None" if len(set(options)) == 1 else "Any"
    kind = entry.get("type")
    if kind == "array":
        return f"list[{_type(entry.get('items', {}), schemas)}]"
    if kind == "object":
        values = entry.get("additionalProperties")
        return f"dict[str, {_type(values, schemas)}]" if isinstance(values, Mapping) else "dict[str, Any]"
    if "const" in entry and not isinstance(kind, str):
        return str(type(entry["const"]).__name__)
    if entry.get("format") == "date-time":
        return "datetime"
    return SCALARS.get(str(kind), "Any")


def _snake(wire: str) -> str:
    """`maxMemoryMiB` -> `max_memory_mib`, `maxTTLSeconds` -> `max_ttl_seconds`, and `from` -> `from_`."""
    plain = wire.replace("MiB", "Mib").replace("GiB", "Gib").replace("CPU", "Cpu").replace("TTL", "Ttl")
    field = re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: "_" + match[1], plain).lower()
    return f"{field}_" if iskeyword(field) else field


def _camel(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _codes() -> str:
    public = {reaction.public for reaction in REACTIONS.values()}
    classes = [kind for kind in _tree(DifferentlyError) if kind.code in public and kind.__name__ in _named(public)]
    kept = {kind.__name__ for kind in classes}
    parts = [f'"""One class for each code that the API answers with, as in docs/reference/errors.md."""\n\n{MADE}']
    parts += ["from __future__ import annotations", "from ._failure import ApiError"]
    bodies = [_code(kind, next((base.__name__ for base in kind.__mro__[1:] if base.__name__ in kept), "ApiError"))
              for kind in classes]  # fmt: skip
    table = "\n".join(f"        {kind.__name__}," for kind in classes)
    by_code = f"BY_CODE: dict[str, type[ApiError]] = {{\n    kind.code: kind\n    for kind in (\n{table}\n    )\n}}"
    return "\n\n".join(parts) + "\n\n\n" + "\n\n\n".join([*bodies, by_code]) + "\n"


def _named(public: set[str]) -> set[str]:
    """The class whose name says the code: some inside share a public one."""
    return {"".join(word.capitalize() for word in code.split("_")) for code in public}


def _code(kind: type[DifferentlyError], base: str) -> str:
    reaction = REACTIONS[kind.code]
    return "\n".join(
        [
            f"class {kind.__name__}({base}):",
            *_doc(reaction.meaning, "    "),
            "",
            f'    code = "{kind.code}"',
            f"    status = {reaction.http_status}",
        ]
    )


def _tree(base: type[DifferentlyError]) -> Iterator[type[DifferentlyError]]:
    """Every class in the order of the file, so that a base comes before what is derived from it."""
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, base) and kind is not base:
            yield kind
