"""The OpenAPI 3.1 document, made from the routes. Imported only by what serves or checks it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from differently_core.errors import (
    REACTIONS,
    DifferentlyError,
    Forbidden,
    Internal,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    ProviderUnavailable,
    Unauthenticated,
)
from differently_core.model.described import describe, reached
from differently_core.model.record import camel

from .examples import EXAMPLE_REQUEST_ID, EXAMPLES, PATH_EXAMPLES
from .failures import ErrorBody
from .route import Access, AnyRoute, NoBody, NoQuery
from .routes.commands import LINES, NDJSON

JSON = "application/json"
Schema = dict[str, Any]
INTRODUCTION = """\
One API in front of many sandbox backends. Send your key as `Authorization: Bearer dk_…`. Bodies are JSON in camelCase;
unknown fields are refused. Every answer carries `X-Request-Id`; every error is
`{"error": {"code", "message", "details", "requestId"}}`. Times are RFC 3339 in UTC."""
HEADERS: Mapping[str, Schema] = {
    "X-Request-Id": {"description": "Names this call in our logs.", "schema": {"type": "string"}},
    "Retry-After": {"description": "Seconds after which a repeat can help.", "schema": {"type": "integer"}},
    "Location": {"description": "Path of what was made.", "schema": {"type": "string"}},
    "Idempotent-Replayed": {
        "description": "`true` on the answer to a repeat.", "schema": {"type": "string", "const": "true"},
    },
    "Content-Disposition": {"description": "Always an attachment.", "schema": {"type": "string"}},
    "Content-Length": {"description": "Size of the file.", "schema": {"type": "integer"}},
}  # fmt: skip


def document_json(routes: Sequence[AnyRoute], version: str) -> str:
    return json.dumps(document(routes, version), separators=(",", ":"))


def document(routes: Sequence[AnyRoute], version: str) -> Schema:
    schemas = _schemas(routes)
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    shown = {name: schema for name, schema in schemas.items() if name not in _query_names(routes)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Differently", "version": version, "summary": "A control plane for AI-agent sandboxes",
            "description": INTRODUCTION, "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in tags(routes).items()],
        "paths": paths,
        "components": {
            "securitySchemes": {"apiKey": {"type": "http", "scheme": "bearer", "description": "An API key, `dk_…`."}},
            "headers": dict(HEADERS),
            "responses": _shared_failures(routes),
            "examples": {code: {"value": _error_example(code)} for code in sorted(public_codes())},
            "schemas": dict(sorted(shown.items())),
        },
    }  # fmt: skip


def errors_of(route: AnyRoute) -> list[type[DifferentlyError]]:
    """What a call of the route can raise: what it declares, and what follows from the declaration."""
    found: list[type[DifferentlyError]] = [Internal]
    if route.access is not Access.PUBLIC:
        found += [Unauthenticated, ProviderUnavailable]  # the store may be out of reach
    if route.access is Access.OPERATOR:
        found.append(Forbidden)
    if route.params:
        found.append(NotFound)
    found.append(InvalidRequest)  # an unknown query parameter at the least
    if route.body is not NoBody:
        found.append(PayloadTooLarge)
    return list(dict.fromkeys([*found, *route.errors]))


def tags(routes: Sequence[AnyRoute]) -> dict[str, str]:
    """A tag for each resource: the module that declares its routes, described by the module itself."""
    modules = {_tag(route): sys.modules[route.handle.__module__].__doc__ or "" for route in routes}
    return {name: text.strip().split("\n\n")[0].replace("\n", " ") for name, text in modules.items()}


def _tag(route: AnyRoute) -> str:
    return route.handle.__module__.rpartition(".")[2]


def _operation(route: AnyRoute, schemas: Mapping[str, Schema]) -> Schema:
    operation: Schema = {
        "operationId": camel(route.operation_id),
        "tags": [_tag(route)],
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *_query_parameters(route, schemas), *_header_parameters(route)],
        "responses": {**_successes(route), **_failures(route)},
        "x-access": route.access.value,
        "x-function": route.group.value,
    }
    if route.description:
        operation["description"] = route.description
    if route.access is not Access.PUBLIC:
        operation["security"] = [{"apiKey": []}]
    if route.body is not NoBody:
        operation["requestBody"] = _request_body(route)
    return operation


def _path_parameters(route: AnyRoute) -> list[Schema]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "example": PATH_EXAMPLES[name]}
        for name in route.params
    ]


def _query_parameters(route: AnyRoute, schemas: Mapping[str, Schema]) -> list[Schema]:
    if route.query is NoQuery:
        return []
    schema = schemas[route.query.__name__]
    required = schema.get("required", [])
    return [
        _parameter(name, _without_null(dict(field)), name in required) for name, field in schema["properties"].items()
    ]


def _parameter(name: str, schema: Schema, required: bool) -> Schema:
    description = schema.pop("description", None)
    parameter = {"name": name, "in": "query", "required": required, "schema": schema}
    return {**parameter, "description": description} if description else parameter


def _without_null(schema: Schema) -> Schema:
    """In a query string a parameter is there or not; null cannot be written."""
    options = [option for option in schema.get("anyOf", []) if option != {"type": "null"}]
    if len(options) != 1:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**options[0], **rest}


def _header_parameters(route: AnyRoute) -> list[Schema]:
    return [
        {
            "name": name, "in": "header", "required": False, "description": text,
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[\\x21-\\x7e]+$"},
        }
        for name, text in route.request_headers.items()
    ]  # fmt: skip


def _request_body(route: AnyRoute) -> Schema:
    if route.body is bytes:
        binary = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        return {"required": False, "content": binary}  # nothing is an empty file
    content: Schema = {"schema": _ref(route.body)}
    if route.body in EXAMPLES:
        content["example"] = EXAMPLES[route.body]
    return {"required": bool(_required(route.body)), "content": {JSON: content}}


def _required(model: type[BaseModel]) -> bool:
    return any(field.is_required() for field in model.model_fields.values())


def _successes(route: AnyRoute) -> dict[str, Schema]:
    content: dict[str, Schema] = {}
    if route.answer is not None:
        content[JSON] = {"schema": _ref(route.answer)}
        if route.answer in EXAMPLES:
            content[JSON]["example"] = EXAMPLES[route.answer]
    if route.media == NDJSON:
        lines = {"anyOf": [_ref(line) for line in LINES], "description": "Each line is one of these."}
        content[NDJSON] = {"schema": lines}
    elif route.media is not None:
        content[route.media] = {"schema": {"type": "string", "format": "binary"}}
    success: Schema = {"description": route.summary, "headers": _headers(*_success_headers(route))}
    if content:
        success["content"] = content
    return {str(status): success for status in (route.status, *route.also)}


def _success_headers(route: AnyRoute) -> list[str]:
    names = ["X-Request-Id"]
    if route.request_headers:
        names += ["Location", "Idempotent-Replayed"]
    if route.media is not None and route.answer is None:
        names += ["Content-Disposition", "Content-Length"]
    return names


def _headers(*names: str) -> Schema:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _failures(route: AnyRoute) -> dict[str, Schema]:
    """Responses are shared: most routes fail alike."""
    return {
        str(status): {"$ref": f"#/components/responses/{'.'.join(codes)}"}
        for status, codes in sorted(_codes(route).items())
    }


def _codes(route: AnyRoute) -> dict[int, list[str]]:
    reactions = [REACTIONS[error.code] for error in errors_of(route)]
    statuses = {reaction.http_status for reaction in reactions}
    return {
        status: sorted({reaction.public for reaction in reactions if reaction.http_status == status})
        for status in statuses
    }


def _shared_failures(routes: Sequence[AnyRoute]) -> dict[str, Schema]:
    found = {(status, tuple(codes)) for route in routes for status, codes in _codes(route).items()}
    return {
        ".".join(codes): {
            "description": " ".join(f"`{code}`: {REACTIONS[code].meaning}" for code in codes),
            "headers": _headers("X-Request-Id", *(["Retry-After"] if status in (429, 503) else [])),
            "content": {
                JSON: {
                    "schema": _ref(ErrorBody),
                    "examples": {code: {"$ref": f"#/components/examples/{code}"} for code in codes},
                }
            },
        }
        for status, codes in sorted(found)
    }


def public_codes() -> set[str]:
    """The codes that callers see."""
    return {reaction.public for reaction in REACTIONS.values()}


def _error_example(code: str) -> Schema:
    message = REACTIONS[code].meaning
    return {"error": {"code": code, "message": message, "details": {}, "requestId": EXAMPLE_REQUEST_ID}}


def _ref(model: type[BaseModel]) -> Schema:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _query_names(routes: Sequence[AnyRoute]) -> set[str]:
    return {route.query.__name__ for route in routes}


def _schemas(routes: Sequence[AnyRoute]) -> dict[str, Schema]:
    models: dict[type[BaseModel], None] = {ErrorBody: None}
    for route in routes:
        for model in (route.body, route.query, route.answer, *(LINES if route.media == NDJSON else ())):
            if isinstance(model, type) and issubclass(model, BaseModel) and model is not NoBody:
                models[model] = None
    _, made = models_json_schema(
        [(model, "validation") for model in models], by_alias=True, ref_template="#/components/schemas/{model}"
    )
    schemas: dict[str, Schema] = made.get("$defs", {})
    for model in reached(models):
        if model.__name__ in schemas:
            describe(schemas[model.__name__], model)
    return schemas
