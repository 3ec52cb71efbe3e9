"""The written reference of routes and errors, made from the OpenAPI document and the table of reactions.

python -m differently_api.reference docs/reference           write it
python -m differently_api.reference docs/reference --check   fail when what is written is not current
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from differently_core.errors import REACTIONS

from .failures import RETRY_AFTER_SECONDS
from .openapi import document
from .routes import ROUTES

Schema = Mapping[str, Any]
MADE = "<!-- Made from the code: python -m differently_api.reference docs/reference -->"
ACCESS = {
    "public": "no key",
    "tenant": "a project's key, or an operator's",
    "any": "any key",
    "operator": "an operator's key",
}
RETRIES = {
    "no": "No: it would fail again.",
    "after_read": "After a look at the sandbox's state.",
    "later": f"After `Retry-After` ({RETRY_AFTER_SECONDS['later']} s), when something has ended.",
    "soon": f"After `Retry-After` ({RETRY_AFTER_SECONDS['soon']} s).",
    "backoff": f"After `Retry-After` ({RETRY_AFTER_SECONDS['backoff']} s), then less and less often.",
}


def pages() -> dict[str, str]:
    """Each page by its file name."""
    return {"api.md": _api(document(ROUTES, "v1")), "errors.md": _errors()}


def _api(described: Schema) -> str:
    schemas = described["components"]["schemas"]
    parts = [MADE, "# The API", described["info"]["description"], *_groups(described)]
    parts += ["## Objects", *(_object(name, schema) for name, schema in schemas.items())]
    return "\n\n".join(parts) + "\n"


def _groups(described: Schema) -> Iterator[str]:
    for tag in described["tags"]:
        yield f"## {tag['name'].capitalize()}"
        yield tag["description"]
        for path, methods in described["paths"].items():
            for method, operation in methods.items():
                if operation["tags"] == [tag["name"]]:
                    yield _route(f"{method.upper()} {path}", operation, described["components"]["responses"])


def _route(name: str, operation: Schema, responses: Schema) -> str:
    parts = [f"### `{name}`", f"{operation['summary']}. {operation.get('description', '')}".strip()]
    parts.append(f"Needs {ACCESS[operation['x-access']]}. Served by the `{operation['x-function']}` function.")
    given = [entry for entry in operation["parameters"] if entry["in"] != "path"]
    if given:
        parts.append(_table(("parameter", "in", "type", "about"), [_parameter(entry) for entry in given]))
    if "requestBody" in operation:
        parts.append(f"Body: {_content(operation['requestBody']['content'])}.")
        example = operation["requestBody"]["content"].get("application/json", {}).get("example")
        if example is not None:
            parts.append(f"```json\n{json.dumps(example, indent=2, ensure_ascii=False)}\n```")
    parts.append(_answers(operation["responses"], responses))
    return "\n\n".join(parts)


def _parameter(entry: Schema) -> tuple[str, ...]:
    required = " (required)" if entry["required"] else ""
    return f"`{entry['name']}`", entry["in"], _type(entry["schema"]) + required, _about({**entry["schema"], **entry})


def _answers(given: Schema, responses: Schema) -> str:
    good = [
        f"{status} {_content(answer.get('content', {}))}" for status, answer in given.items() if "$ref" not in answer
    ]
    codes = [code for answer in given.values() if "$ref" in answer for code in _name(answer["$ref"]).split(".")]
    links = ", ".join(f"[`{code}`](errors.md#{code})" for code in codes)
    return f"Answers {' or '.join(good)}. Errors: {links}."


def _content(content: Schema) -> str:
    if not content:
        return "without a body"
    shown = []
    for media, entry in content.items():
        lines = [_type(option) for option in entry["schema"].get("anyOf", [])]
        shown.append(f"`{media}`: " + (" or ".join(lines) + " a line" if lines else _type(entry["schema"])))
    return "; ".join(shown)


def _object(name: str, schema: Schema) -> str:
    parts = [f"### {name}"]
    if "description" in schema:
        parts.append(schema["description"].replace("\n", " "))
    if "enum" in schema:
        parts.append("One of " + ", ".join(f"`{value}`" for value in schema["enum"]) + ".")
    if schema.get("properties"):
        required = set(schema.get("required", []))
        rows = [
            (f"`{field}`" + (" (required)" if field in required else ""), _type(entry), _about(entry))
            for field, entry in schema["properties"].items()
        ]
        parts.append(_table(("field", "type", "about"), rows))
    return "\n\n".join(parts)


def _about(entry: Schema) -> str:
    default = entry.get("default")
    text = str(entry.get("description", ""))
    told = f"Default: `{json.dumps(default)}`." if default not in (None, {}, [], "") else ""
    return " ".join(part for part in (text, told) if part)


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        name = _name(schema["$ref"])
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = str(schema.get("type", "any JSON"))
    if kind == "array":
        return f"list of {_type(schema['items'])}{_bounds(schema, 'Items')}"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"map of {_type(values)}{_bounds(schema, 'Properties')}" if isinstance(values, Mapping) else "object"
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


def _name(ref: str) -> str:
    return ref.rpartition("/")[2]


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )


def _errors() -> str:
    shown = {reaction.public: REACTIONS[reaction.public] for reaction in REACTIONS.values()}
    hidden = {code: reaction.public for code, reaction in REACTIONS.items() if code != reaction.public}
    parts = [
        MADE,
        "# Errors",
        'Every error is `{"error": {"code", "message", "details", "requestId"}}`. `code` is for programs and stable; '
        "`message` is for people and may change; `details` name the field, limit or pool it is about. Give `requestId` "
        "to your operator: it finds the call in the logs.",
        _table(
            ("code", "status", "meaning", "repeat?"),
            [
                (f'<a id="{code}"></a>`{code}`', str(entry.http_status), entry.meaning, _retry(code))
                for code, entry in shown.items()
            ],
        ),
    ]
    told = ", ".join(f"`{code}` as `{public}`" for code, public in sorted(hidden.items()))
    parts += ["## Codes that callers do not see", f"Inside, more is told apart. Callers see {told}."]
    return "\n\n".join(parts) + "\n"


def _retry(code: str) -> str:
    entry = REACTIONS[code]
    if entry.http_status == 500:
        return "Once or twice, if a repeat can do no harm; then tell your operator."
    if code == "exec_unconfirmed":
        return "Only a command that may run twice."
    return RETRIES[entry.retry]


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0])
    stale = [name for name, text in pages().items() if not _is_current(folder / name, text)]
    if "--check" in arguments:
        for name in stale:
            print(f"{folder / name} is not current: run python -m differently_api.reference {folder}", file=sys.stderr)
        return 1 if stale else 0
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


def _is_current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
