"""The OpenAPI document and the written reference say what is served."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import validate
from pydantic import BaseModel

from differently_adapters.registry import KINDS, TrustList, load
from differently_api.examples import EXAMPLES, PATH_EXAMPLES
from differently_api.openapi import errors_of
from differently_api.reference import pages
from differently_api.route import Access, AnyRoute, NoBody
from differently_api.router import Router
from differently_api.routes import ROUTES
from differently_core.errors import REACTIONS
from tests.support.api import World

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


@pytest.fixture(scope="module")
def document() -> Any:
    return World().call("GET", "/openapi.json").json()


def test_the_document_is_valid_openapi(document: Any) -> None:
    validate(document)
    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == "1.2.3"


def test_every_route_is_described_and_nothing_else(document: Any) -> None:
    described = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    assert described == {route.name for route in ROUTES}
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_route_is_described_whole(document: Any, route: AnyRoute) -> None:
    operation = document["paths"][route.path][route.method.lower()]
    assert operation["x-access"] == route.access
    assert ("security" in operation) == (route.access is not Access.PUBLIC)
    assert ("requestBody" in operation) == (route.body is not NoBody)
    assert operation["summary"][0].isupper()
    assert not operation["summary"].endswith(".")
    given = {entry["name"] for entry in operation["parameters"] if entry["in"] == "path"}
    assert given == set(route.params)
    statuses = {str(REACTIONS[error.code].http_status) for error in errors_of(route)}
    assert set(operation["responses"]) == {str(route.status), *map(str, route.also), *statuses}


def test_no_reference_leads_nowhere(document: Any) -> None:
    def refs(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [found for entry in value.values() for found in refs(entry)]
        return [found for entry in value for found in refs(entry)] if isinstance(value, list) else []

    for ref in set(refs(document)):
        target = document
        for part in ref.removeprefix("#/").split("/"):
            target = target[part]


def test_the_document_costs_nothing_until_it_is_asked_for() -> None:
    import subprocess
    import sys

    probe = "import sys, differently_api.app; print('differently_api.openapi' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


@pytest.mark.parametrize("model", EXAMPLES, ids=lambda model: model.__name__)
def test_every_example_fits_its_model(model: type[BaseModel]) -> None:
    model.model_validate_json(json.dumps(EXAMPLES[model]), strict=True, by_alias=True, by_name=False)


def test_every_path_parameter_has_an_example() -> None:
    assert {name for route in ROUTES for name in route.params} == set(PATH_EXAMPLES)


@pytest.mark.parametrize("name", pages())
def test_the_written_reference_is_current(name: str) -> None:
    """If not: python -m differently_api.reference docs/reference"""
    assert (REFERENCE / name).read_text(encoding="utf-8") == pages()[name]


def test_a_route_is_declared_once() -> None:
    with pytest.raises(ValueError, match="declared twice"):
        Router([*ROUTES, ROUTES[0]])


def test_links_of_the_reference_lead_somewhere() -> None:
    text, errors = pages()["api.md"], pages()["errors.md"]
    anchors = {heading.lower() for heading in re.findall(r"^### ([A-Za-z]+)$", text, re.MULTILINE)}
    assert set(re.findall(r"\]\(#([a-z]+)\)", text)) <= anchors
    codes = set(re.findall(r'<a id="([a-z_]+)">', errors))
    assert set(re.findall(r"errors\.md#([a-z_]+)", text)) <= codes


def test_the_catalog_tells_of_every_kind_and_leads_to_its_page() -> None:
    """Pages of providers are written by hand: none may be missing, nor told of as more than was tested."""
    text = pages()["providers.md"]
    for kind in KINDS:
        assert f"\n## {kind}\n" in text
    for link in re.findall(r"\]\((\.\./[a-z/-]+\.md)\)", text):
        assert (REFERENCE / link).exists(), link
    for kind, row in KINDS.items():
        assert (row.trust is TrustList.DEV_ONLY) or f"/{kind}.md" in text or kind == "remote"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_setting_says_what_it_is(kind: str) -> None:
    """Forms, catalog and command line show nothing else of a setting than its schema."""
    schema: Any = load(kind).registration.schema()
    for model in (schema, *schema.get("$defs", {}).values()):
        for name, setting in model.get("properties", {}).items():
            assert setting.get("description"), name
