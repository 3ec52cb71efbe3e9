"""Descriptions of fields, from what is written under them in their class.

Nothing reads them on the way of a call, so the modules that read source load when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]


def describe(schema: Schema, model: type[BaseModel]) -> None:
    """Add to a model's JSON Schema, in place: titles that only repeat a name go, what stands under a field comes."""
    schema.pop("title", None)
    texts = field_texts(model)
    for name, field in model.model_fields.items():
        shown = schema.get("properties", {}).get(field.alias or name)
        if shown is not None:
            shown.pop("title", None)
            if name in texts:
                shown["description"] = texts[name]


def reached(models: Iterable[type[BaseModel]]) -> list[type[BaseModel]]:
    """The models and every model of ours that a field of theirs mentions."""
    found: dict[type[BaseModel], None] = {}
    waiting = list(models)
    while waiting:
        model = waiting.pop()
        if model in found:
            continue
        found[model] = None
        for field in model.model_fields.values():
            waiting += [part for part in _types_in(field.annotation) if issubclass(part, BaseModel)]
    return list(found)


def _types_in(annotation: Any) -> list[type]:
    parts = getattr(annotation, "__args__", None)
    if parts:
        return [found for part in parts for found in _types_in(part)]
    return [annotation] if isinstance(annotation, type) else []


def field_texts(model: type[BaseModel]) -> dict[str, str]:
    """What stands under each field, by its Python name."""
    texts: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if kind is not BaseModel and isinstance(kind, type) and issubclass(kind, BaseModel):
            texts.update(_texts_in(kind))
    return texts


def _texts_in(model: type[BaseModel]) -> dict[str, str]:
    import ast
    import inspect
    import textwrap

    try:
        source = textwrap.dedent(inspect.getsource(model))
    except OSError:  # shipped without its source: the schema is the poorer, not wrong
        return {}
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    texts: dict[str, str] = {}
    for line, after in zip(definition.body, definition.body[1:], strict=False):
        text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and isinstance(text, str):
            texts[line.target.id] = inspect.cleandoc(text)
    return texts
