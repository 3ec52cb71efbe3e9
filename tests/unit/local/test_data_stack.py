"""Tables are made on this machine alone, and are never changed under the rows that are in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from differently_core.model.record import Table
from differently_local import data_stack
from differently_local.failure import StartFailure
from differently_local.signals import StopRequest
from tests.support.emulator import Emulator


@pytest.mark.parametrize("endpoint", ["http://10.0.0.1:1", "https://dynamodb.eu-central-1.amazonaws.com", "", "x"])
def test_an_endpoint_elsewhere_is_refused(endpoint: str) -> None:
    with pytest.raises(StartFailure, match="not a loopback"):
        data_stack.obtain(endpoint, StopRequest(), print)


def test_the_stack_is_made_once_and_then_found(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_stack, "STACK", "made-once")
    said: list[str] = []
    made = data_stack.obtain(emulator.url, StopRequest(), said.append)
    assert set(made.tables) == set(Table)
    assert made.secrets_key.startswith("arn:aws:kms:")
    assert len(said) == 1
    assert data_stack.obtain(emulator.url, StopRequest(), said.append) == made
    assert len(said) == 1


def test_tables_of_another_version_are_left_alone(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(data_stack, "STACK", "changed")
    data_stack.obtain(emulator.url, StopRequest(), print)
    template = json.loads(data_stack.TEMPLATE.read_text())
    state = next(found for found in template["Resources"].values() if "GlobalSecondaryIndexes" in found["Properties"])
    state["Properties"]["GlobalSecondaryIndexes"].pop()
    changed = tmp_path / "template.json"
    changed.write_text(json.dumps(template))
    monkeypatch.setattr(data_stack, "TEMPLATE", changed)
    with pytest.raises(StartFailure, match="another version"):
        data_stack.obtain(emulator.url, StopRequest(), print)


def test_a_description_may_change() -> None:
    template = json.loads(data_stack.TEMPLATE.read_text())
    before = data_stack.schemas(template)
    template["Description"] = "other"
    for resource in template["Resources"].values():
        resource["Properties"]["Tags"] = []
    assert data_stack.schemas(template) == before
