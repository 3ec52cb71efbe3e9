"""About the service itself. Nothing here needs a key, and nothing here reads the store."""

from __future__ import annotations

from typing import Literal

from differently_core.model.record import Wire

from ..failures import JSON
from ..route import Access, Answer, Call, Group, Method, NoBody, NoQuery, Route


class Version(Wire):
    version: str
    api: Literal["v1"] = "v1"


class Health(Wire):
    status: Literal["ok"] = "ok"


class OpenApiDocument(Wire):
    """An OpenAPI 3.1 document."""

    openapi: str


def get_version(call: Call[NoBody, NoQuery]) -> Version:
    return Version(version=call.service.version)


def get_health(call: Call[NoBody, NoQuery]) -> Health:
    return Health()


def get_document(call: Call[NoBody, NoQuery]) -> Answer:
    return Answer(200, call.service.document(), {"Content-Type": JSON})


ROUTES = (
    Route(
        Method.GET, "/version", Group.CONTROL, Access.PUBLIC, get_version,
        "Read the version", NoBody, NoQuery, Version,
    ),
    Route(
        Method.GET, "/healthz", Group.CONTROL, Access.PUBLIC, get_health,
        "See that the API answers", NoBody, NoQuery, Health,
    ),
    Route(
        Method.GET, "/openapi.json", Group.CONTROL, Access.PUBLIC, get_document,
        "Read this API's description", NoBody, NoQuery, OpenApiDocument,
    ),
)  # fmt: skip
