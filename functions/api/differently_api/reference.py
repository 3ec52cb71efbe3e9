"""The written reference of routes, errors, events and kinds, made from what the code declares, and what the Python
client has of it.

python -m differently_api.reference docs/reference           write it
python -m differently_api.reference docs/reference --check   fail when what is written is not current
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from differently_core.errors import REACTIONS
from differently_core.model.described import field_texts
from differently_core.model.event import Event
from differently_core.model.lifecycle import (
    CAUSES,
    SCHEMA,
    TYPES,
    Cause,
    EventType,
    LifecycleData,
    Why,
    published,
)
from differently_core.model.sandbox import Status

from . import catalog, client_code
from .examples import AT, EVENT, ORG, PROJECT, SANDBOX
from .failures import RETRY_AFTER_SECONDS
from .markdown import Schema, about, name_of, table, type_of
from .openapi import document
from .routes import ROUTES

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
    return {
        "api.md": _api(document(ROUTES, "v1")),
        "errors.md": _errors(),
        "events.md": _events(),
        "providers.md": f"{MADE}\n\n{catalog.page()}",
        **client_code.modules(),
    }


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
        parts.append(table(("parameter", "in", "type", "about"), [_parameter(entry) for entry in given]))
    if "requestBody" in operation:
        parts.append(f"Body: {_content(operation['requestBody']['content'])}.")
        example = operation["requestBody"]["content"].get("application/json", {}).get("example")
        if example is not None:
            parts.append(f"```json\n{json.dumps(example, indent=2, ensure_ascii=False)}\n```")
    parts.append(_answers(operation["responses"], responses))
    return "\n\n".join(parts)


def _parameter(entry: Schema) -> tuple[str, ...]:
    required = " (required)" if entry["required"] else ""
    return f"`{entry['name']}`", entry["in"], type_of(entry["schema"]) + required, about({**entry["schema"], **entry})


def _answers(given: Schema, responses: Schema) -> str:
    good = [
        f"{status} {_content(answer.get('content', {}))}" for status, answer in given.items() if "$ref" not in answer
    ]
    codes = [code for answer in given.values() if "$ref" in answer for code in name_of(answer["$ref"]).split(".")]
    links = ", ".join(f"[`{code}`](errors.md#{code})" for code in codes)
    return f"Answers {' or '.join(good)}. Errors: {links}."


def _content(content: Schema) -> str:
    if not content:
        return "without a body"
    shown = []
    for media, entry in content.items():
        lines = [type_of(option) for option in entry["schema"].get("anyOf", [])]
        shown.append(f"`{media}`: " + (" or ".join(lines) + " a line" if lines else type_of(entry["schema"])))
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
            (f"`{field}`" + (" (required)" if field in required else ""), type_of(entry), about(entry))
            for field, entry in schema["properties"].items()
        ]
        parts.append(table(("field", "type", "about"), rows))
    return "\n\n".join(parts)


def _errors() -> str:
    shown = {reaction.public: REACTIONS[reaction.public] for reaction in REACTIONS.values()}
    hidden = {code: reaction.public for code, reaction in REACTIONS.items() if code != reaction.public}
    parts = [
        MADE,
        "# Errors",
        'Every error is `{"error": {"code", "message", "details", "requestId"}}`. `code` is for programs and stable; '
        "`message` is for people and may change; `details` name the field, limit or pool it is about. Give `requestId` "
        "to your operator: it finds the call in the logs.",
        table(
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


CAUSE_WORDS: Mapping[Cause, str] = {
    Cause.USER: "Somebody with a key asked for it.",
    Cause.TTL: "The time that was asked for is over: its time to live, or how long it may run at a stretch.",
    Cause.IDLE: "Nobody used it.",
    Cause.BUDGET: "A budget is used up.",
    Cause.POLICY: "What operators decided: a preemption, the end of what is kept at rest, a pool taken away.",
    Cause.CAPACITY: "There was no room within its queue timeout.",
    Cause.BACKEND: "The backend lost it, ended it, or could not make it.",
    Cause.LEASE: "The backend's own term ran out.",
    Cause.ERROR: "A fault of ours, or one that nothing else explains.",
}


def _events() -> str:
    codes = {cause: sorted(code for code, means in CAUSES.items() if means is cause) for cause in Cause}
    fields = LifecycleData.model_json_schema(by_alias=True)["properties"]
    texts = field_texts(LifecycleData)
    named = zip(LifecycleData.model_fields, fields.items(), strict=True)
    parts = [
        MADE,
        "# Events",
        "What changes is told to whoever wants it, at least once: to webhooks ([how to](../how-to/webhooks.md)) and, "
        "where it is deployed, on an EventBridge bus. Both carry the same JSON, a "
        "[CloudEvent](https://cloudevents.io/) in its structured form. On the bus it is the `detail`, its `type` is "
        "the `detail-type`, and the `source` is `differently`.",
        f"```json\n{json.dumps(_an_event(), indent=2)}\n```",
        f"`schemaversion` is `{SCHEMA}`. It rises when a field changes its meaning or goes. New types, new fields in "
        "`data`, new facts and new reason codes come without: let them pass. `id` is the same however often and by "
        "whichever way an event is sent, so it tells a repeat; `time` is when the change was written, and ids sort by "
        "it. No event holds a secret, a command, a label, or a text that somebody wrote.",
        "## Data",
        table(
            ("field", "type", "about"),
            [(f"`{shown}`", _plain_type(entry), texts.get(name, "")) for name, (shown, entry) in named],
        ),
        "## Types",
        table(("type", "when", "facts"), [(f"`{name}`", entry.about, _facts(entry)) for name, entry in TYPES.items()]),
        "## Reasons",
        "`reason` is there where a change has one: on every end, and on rests and waits. `cause` is the word to decide "
        "by, `code` tells more.",
        table(
            ("cause", "meaning", "codes beside those that only tell who said so"),
            [(f"`{cause}`", CAUSE_WORDS[cause], ", ".join(f"`{code}`" for code in codes[cause])) for cause in Cause],
        ),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _an_event() -> Any:
    event = Event.model_validate(
        {
            "id": EVENT, "org": ORG, "project": PROJECT, "at": AT, "actor": "system:worker",
            "request_id": "system:worker", "action": "sandbox.terminated", "target": SANDBOX, "pool": "eks-main",
            "before": Status.TERMINATING.value, "after": Status.TERMINATED.value,
            "details": {"reason": "ttl_expired", "source": "timer"},
        }
    )  # fmt: skip
    shown = published(event, "inst_01JBM2XWQ2R4T6V8X0Z1B3D5F7")
    assert shown is not None
    return json.loads(shown.text())


def _plain_type(schema: Schema) -> str:
    options = [option for option in schema.get("anyOf", [schema]) if option.get("type") != "null"]
    if len(options) == 1 and "$ref" in options[0]:
        return ", ".join(f"`{name}`" for name in Why.model_fields)
    return type_of({**schema, "anyOf": options} if len(options) > 1 else options[0])


def _facts(entry: EventType) -> str:
    return "; ".join(f"`{name}`: {about}" for name, about in entry.facts.items())


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
