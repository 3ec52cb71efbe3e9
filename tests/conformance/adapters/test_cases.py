"""How many cases of the suite each kind answers, and how many operations it declares."""

from __future__ import annotations

import inspect
from importlib import import_module
from math import prod

import pytest

from differently_adapters.registry import KINDS, load
from differently_adapters.testing import AdapterConformance
from differently_core.contract import Supported

CASES_MIN = 300
"""The suite only grows; a topic that falls out of it would show here."""


def conformance_classes(kind: str) -> list[type[AdapterConformance]]:
    module = import_module(f"tests.conformance.adapters.test_{kind.replace('-', '_')}")
    return [
        value
        for name, value in vars(module).items()
        if name.startswith("Test") and isinstance(value, type) and issubclass(value, AdapterConformance)
    ]


def cases(conformance: type[AdapterConformance]) -> int:
    return sum(_cases_of(test) for name, test in inspect.getmembers(conformance) if name.startswith("test_"))


def _cases_of(test: object) -> int:
    marks: list[pytest.Mark] = getattr(test, "pytestmark", [])
    return prod(len(mark.args[1]) for mark in marks if mark.name == "parametrize")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_answers_the_whole_suite(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = {conformance.__name__: cases(conformance) for conformance in conformance_classes(kind)}
    declared = load(kind).adapter.operations
    supported = sum(isinstance(support, Supported) for support in declared.values())
    told = ", ".join(f"{name} {number}" for name, number in found.items())
    with capsys.disabled():
        print(f"\n{kind}: {supported} of {len(declared)} operations; cases: {told}")
    assert found
    assert min(found.values()) >= CASES_MIN
