"""The catalog of kinds of pools: what each one declares of itself, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from differently_adapters.registry import KINDS, Kind, TrustList, load
from differently_core.contract import Need, Operation, Supported, Verification

from .markdown import about, table, type_of

COLUMNS: Final[Mapping[str, Operation]] = {
    "streams": Operation.EXEC_STREAM,
    "jobs": Operation.JOB_START,
    "files": Operation.FILE_READ,
    "stop, start": Operation.STOP,
    "pause, resume": Operation.PAUSE,
    "snapshots": Operation.SNAPSHOT,
    "ports": Operation.PORT_EXPOSE,
    "egress rules": Operation.EGRESS_SET,
    "renewal": Operation.RENEW,
}
"""One operation of each group that is declared together."""
PAGES: Final[Mapping[str, str]] = {"remote": "../how-to/remote-plugin.md"}
TRUST: Final[Mapping[TrustList, str]] = {
    TrustList.ALWAYS_EXTERNAL: "always external",
    TrustList.OPERATOR_DECLARES: "each pool says",
    TrustList.DEV_ONLY: "for development only",
}
VERIFIED: Final[Mapping[Verification, str]] = {
    Verification.LIVE: "the service itself, with an account",
    Verification.REAL_SERVER: "the vendor's own server, or the machine itself where there is no vendor",
    Verification.VENDOR_SDK: "a stand-in of ours that the vendor's own client also drives",
    Verification.FAKE: "a stand-in of ours, made from the vendor's documentation",
}


def page() -> str:
    """The whole page, from the title on."""
    kinds = {name: load(name) for name in sorted(KINDS)}
    parts = [
        "# Kinds of pools",
        "What each kind declares of itself; the API tells the same at `GET /v1/admin/adapter-kinds`. Every kind passes "
        "one conformance suite for all that it declares. Creating, listing, deleting and running commands are in no "
        "table: every kind has them.",
        table(
            ("kind", "verified against", "trust", "credential"),
            [(_linked(name), kind.registration.verification.value, _trust(name), _credential(kind))
             for name, kind in kinds.items()],
        ),
        "The levels of verification, from the most real down:",
        "\n".join(f"- **{level.value}**: {meaning}." for level, meaning in VERIFIED.items()),
        "## What sandboxes can do there",
        table(
            ("kind", *COLUMNS),
            [(f"`{name}`", *(_offered(kind, operation) for operation in COLUMNS.values()))
             for name, kind in kinds.items()],
        ),
        "A pool may offer less than its kind, where its configuration or its backend takes something away; "
        "`GET /v1/capabilities` tells what pools offer.",
    ]  # fmt: skip
    for name, kind in kinds.items():
        parts += _chapter(name, kind)
    return "\n\n".join(parts) + "\n"


def _more(kind: str) -> str:
    """Kinds for development are told of with `make run`; every other one has a page of its own."""
    if KINDS[kind].trust is TrustList.DEV_ONLY:
        return ""
    return f"See [its page]({PAGES.get(kind, f'../providers/{kind}.md')})."


def _linked(kind: str) -> str:
    return f"[`{kind}`](#{kind})"


def _trust(kind: str) -> str:
    return TRUST[KINDS[kind].trust]


def _credential(kind: Kind) -> str:
    needed = kind.registration.requirements
    if needed.credential is Need.NONE:
        return "none"
    fields = ", ".join(f"`{field}`" for field in needed.credential_fields)
    return f"{fields} ({needed.credential.value})"


def _offered(kind: Kind, operation: Operation) -> str:
    return "yes" if isinstance(kind.adapter.operations[operation], Supported) else "no"


def _chapter(name: str, kind: Kind) -> Iterator[str]:
    told = kind.registration
    yield f"## {name}"
    yield f"{told.summary} {_more(name)}".strip()
    if told.tested_versions:
        yield f"Tested with {', '.join(told.tested_versions)}; a pool on another release carries a warning."
    if told.limits:
        yield "\n".join(f"- {limit}" for limit in told.limits)
    missing = [
        f"`{operation.value}`: `{support.reason}`"
        for operation, support in kind.adapter.operations.items()
        if not isinstance(support, Supported)
    ]
    if missing:
        yield f"Not offered, each with its reason: {', '.join(missing)}."
    schema = told.schema()
    yield from _settings(schema)


def _settings(schema: Mapping[str, Any]) -> Iterator[str]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    if not properties:
        yield "Its pools have no settings."
        return
    required = set(schema.get("required", []))
    yield table(
        ("setting", "type", "about"),
        [
            (f"`{field}`" + (" (required)" if field in required else ""), _type(entry, schema), about(entry))
            for field, entry in properties.items()
        ],
    )


def _type(entry: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    """What a `$ref` leads to is told in place: these pages have no list of objects."""
    if "$ref" in entry:
        return _type(whole["$defs"][entry["$ref"].rpartition("/")[2]], whole)
    if "anyOf" in entry:
        return " or ".join(_type(option, whole) for option in entry["anyOf"])
    if entry.get("type") == "array":
        return f"list of {_type(entry['items'], whole)}"
    if entry.get("type") == "object" and "properties" in entry:
        inner = ", ".join(f"`{name}`: {_type(part, whole)}" for name, part in entry["properties"].items())
        return f"object ({inner})"
    if isinstance(entry.get("additionalProperties"), Mapping):
        return f"map of {_type(entry['additionalProperties'], whole)}"
    return type_of(entry)
