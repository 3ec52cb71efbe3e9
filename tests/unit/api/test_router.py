"""Paths match whole and literally."""

from __future__ import annotations

from typing import Any

import pytest

from differently_api.route import Access, Answer, Call, Group, Method, NoBody, NoQuery, Route
from differently_api.router import Router
from differently_core.errors import MethodNotAllowed, NotFound


def handle(call: Call[NoBody, NoQuery]) -> Answer:
    return Answer(204)


def a_route(method: Method, path: str) -> Route[NoBody, NoQuery]:
    return Route(method, path, Group.CONTROL, Access.PUBLIC, handle, "Test", NoBody, NoQuery)


ROUTER = Router(
    [
        a_route(Method.GET, "/things"), a_route(Method.POST, "/things"), a_route(Method.GET, "/things/{id}"),
        a_route(Method.GET, "/things/new"), a_route(Method.GET, "/things/{id}/parts/{part}"),
        a_route(Method.GET, "/{kind}/{id}/parts/none"),
    ]
)  # fmt: skip


@pytest.mark.parametrize(
    ("path", "template", "params"),
    [
        ("/things", "/things", {}),
        ("/things/7", "/things/{id}", {"id": "7"}),
        ("/things/new", "/things/new", {}),
        ("/things/a%2Fb", "/things/{id}", {"id": "a/b"}),
        ("/things/%252F", "/things/{id}", {"id": "%2F"}),
        ("/things/ü", "/things/{id}", {"id": "ü"}),
        ("/things/..", "/things/{id}", {"id": ".."}),
        ("/things/7/parts/8", "/things/{id}/parts/{part}", {"id": "7", "part": "8"}),
        ("/others/7/parts/none", "/{kind}/{id}/parts/none", {"kind": "others", "id": "7"}),
    ],
)
def test_a_path_finds_its_route_and_parameters(path: str, template: str, params: dict[str, str]) -> None:
    match = ROUTER.match("GET", path)
    assert (match.route.path, match.params) == (template, params)


@pytest.mark.parametrize(
    "path", ["", "/", "things", "/things/", "//things", "/Things", "/things/7/", "/things//parts/8"]
)
def test_another_spelling_is_another_path(path: str) -> None:
    with pytest.raises(NotFound):
        ROUTER.match("GET", path)


def test_a_method_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(MethodNotAllowed) as refusal:
        ROUTER.match("DELETE", "/things")
    details: dict[str, Any] = refusal.value.details
    assert details["allowed"] == ["GET", "POST"]
    assert list(ROUTER.allowed("/things")) == ["GET", "POST"]
    assert list(ROUTER.allowed("/nothing")) == []
