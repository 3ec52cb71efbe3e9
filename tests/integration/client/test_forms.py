"""Forms of pools are made from what kinds publish; nothing here knows a kind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

import differently.cli
from differently.cli.forms import config_of, fields, rows
from tests.support.api import World
from tests.support.client import client_of

SCHEMA = {
    "properties": {
        "root": {"type": "string", "description": "Where it is."},
        "size": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
        "fast": {"type": "boolean", "default": False},
        "mode": {"$ref": "#/$defs/Mode", "default": "one"},
        "labels": {"type": "object", "default": {}},
    },
    "required": ["root"],
    "$defs": {"Mode": {"enum": ["one", "two"], "type": "string", "description": "How."}},
}


def test_a_value_is_read_as_its_field_says() -> None:
    given = ["root=/x=y", "size=3", "fast=true", "mode=two", 'labels={"a": "b"}']
    assert config_of(SCHEMA, given) == {
        "root": "/x=y", "size": 3, "fast": True, "mode": "two", "labels": {"a": "b"},
    }  # fmt: skip
    assert config_of(SCHEMA, ["size=4"], {"root": "kept", "size": 1}) == {"root": "kept", "size": 4}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["rot=x"], "no field 'rot'; there are: root"),
        ([], "--set root=…"),
        (["root=x", "size=much"], "size is of type integer"),
        (["root=x", "size=true"], "size is of type integer"),
        (["root=x", "fast=yes"], "true or false"),
        (["root=x", "mode=three"], "one of one, two"),
        (["root=x", "labels=a"], "object as JSON"),
        (["root"], "NAME=VALUE"),
    ],
)
def test_what_is_wrong_is_named(given: list[str], told: str) -> None:
    with pytest.raises(typer.BadParameter, match=re.escape(told)):
        config_of(SCHEMA, given, ask=False)


def test_every_kind_of_pool_has_a_form() -> None:
    world = World()
    client, _ = client_of(world, world.operator)
    with client:
        kinds = client.pools.kinds()
        assert len(kinds) > 5
        for kind in kinds:
            told = list(rows(kind.config))
            assert {row["field"] for row in told} == set(kind.config["properties"]), kind.kind
            assert [field.name for field in fields(kind.config) if field.required] == [
                row["field"] for row in told if row["required"]
            ]
            assert client.pools.kind(kind.kind) == kind


def test_the_command_line_names_no_kind() -> None:
    world = World()
    client, _ = client_of(world, world.operator)
    with client:
        names = {kind.kind for kind in client.pools.kinds()} - {"remote", "fake", "boat", "fly"}
    source = "".join(path.read_text() for path in Path(str(differently.cli.__file__)).parent.glob("*.py"))
    assert [name for name in names if re.search(rf"\b{re.escape(name)}\b", source)] == []
