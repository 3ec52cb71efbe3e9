"""Every route says whose things a request can name; one that is new does not pass before that is declared."""

from __future__ import annotations

from differently_api.route import Access, NoBody
from differently_api.routes import ROUTES
from tests.support.naming import NAMINGS, NEW_IDS, OWNED_BY_OPERATORS, OWNERS, named

DECLARE = "declare it in tests/support/naming.py, with what a stranger gets"


def test_every_name_in_a_path_has_an_owner() -> None:
    assert {name for route in ROUTES for name in route.params} == set(OWNERS), DECLARE


def test_every_route_that_names_what_operators_own_is_theirs_or_reads() -> None:
    for route in ROUTES:
        if any(OWNERS[name] in OWNED_BY_OPERATORS for name in route.params) and route.access is not Access.OPERATOR:
            assert route.method == "GET" or route.path.startswith("/v1/secrets/"), route.name


def test_every_field_that_names_something_is_declared() -> None:
    found = {
        f"{route.name} {field}"
        for route in ROUTES
        if route.access is not Access.OPERATOR
        for model in (route.query, route.body)
        if model not in (bytes, NoBody)
        for field in named(model)
    }
    assert found - NEW_IDS == {f"{naming.route} {naming.field}" for naming in NAMINGS}, DECLARE
