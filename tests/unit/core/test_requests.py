"""What callers may send: strict, with the first wrong field named, and one digest for one request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from differently_core.model.features import ISOLATION_NONE
from differently_core.model.sandbox import PoolRejection, Status
from differently_core.operations.requests import (
    ENV_BYTES_MAX,
    ENV_MAX,
    LABELS_MAX,
    CreateSandbox,
    SandboxView,
    UpdateSandbox,
)
from tests.support.builders import NOON, a_sandbox


def parsed(body: dict[str, Any]) -> CreateSandbox:
    return CreateSandbox.model_validate_json(json.dumps(body))


def test_an_empty_body_works():
    assert parsed({}) == CreateSandbox()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"surprise": 1}, "surprise"),
        ({"template": ""}, "template"),
        ({"template": "Python"}, "template"),
        ({"template": "../etc"}, "template"),
        ({"template": "a" * 64}, "template"),
        ({"image": ""}, "image"),
        ({"image": "two words"}, "image"),
        ({"image": "line\nend"}, "image"),
        ({"image": "a" * 513}, "image"),
        ({"resources": {"cpu": 0}}, "cpu"),
        ({"resources": {"cpu": -1}}, "cpu"),
        ({"resources": {"cpu": 1025}}, "cpu"),
        ({"resources": {"memoryMiB": 15}}, "memoryMiB"),
        ({"resources": {"diskGiB": -1}}, "diskGiB"),
        ({"resources": {"gpu": 1}}, "gpu"),
        ({"labels": {"": "x"}}, "labels"),
        ({"labels": {"-dash": "x"}}, "labels"),
        ({"labels": {"nötig": "x"}}, "labels"),
        ({"labels": {"k": "line\nend"}}, "labels"),
        ({"labels": {"k": "x" * 257}}, "labels"),
        ({"labels": {"differently.dev/sandbox-id": "sbx_1"}}, "labels"),
        ({"labels": {"DIFFERENTLY.DEV/x": "1"}}, "labels"),
        ({"labels": {f"k{number}": "" for number in range(LABELS_MAX + 1)}}, "labels"),
        ({"env": {"1A": "x"}}, "env"),
        ({"env": {"A-B": "x"}}, "env"),
        ({"env": {"A": "null\x00byte"}}, "env"),
        ({"env": {f"E{number}": "" for number in range(ENV_MAX + 1)}}, "env"),
        ({"env": {"A": "x" * 30_000, "B": "x" * 30_000, "C": "x" * 10_000}}, "env"),
        ({"capabilities": ["flying"]}, "capabilities"),
        ({"capabilities": [ISOLATION_NONE]}, "capabilities"),
        ({"placement": {"allowedPools": ["Not A Pool"]}}, "allowedPools"),
        ({"ttlSeconds": -1}, "ttlSeconds"),
        ({"ttlSeconds": 10**10}, "ttlSeconds"),
        ({"queueTimeoutSeconds": -1}, "queueTimeoutSeconds"),
        ({"queueTimeoutSeconds": 86_401}, "queueTimeoutSeconds"),
        ({"priority": 10}, "priority"),
        ({"priority": -1}, "priority"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_and_named(body: dict[str, Any], field: str):
    with pytest.raises(ValidationError) as refused:
        parsed(body)

    assert any(field in error["loc"] for error in refused.value.errors())


@pytest.mark.parametrize(
    "body",
    [
        {"image": "registry.example:5000/team/image:tag@sha256:0123"},
        {"labels": {"app.example.com/tier": "web", "k": "ünïcödé, spaces: fine"}},
        {"env": {"A": "x" * 32_768, "_B9": ""}},
        {"capabilities": ["exec", "gpu"]},
        {"resources": {"cpu": 0.001, "memoryMiB": 16, "diskGiB": 0}},
        {"queueTimeoutSeconds": 0, "ttlSeconds": 0, "priority": 9},
    ],
)
def test_an_edge_is_inside(body: dict[str, Any]):
    parsed(body)


def test_env_is_bounded_as_a_whole_in_bytes():
    """A letter of two bytes counts twice."""
    with pytest.raises(ValidationError, match=str(ENV_BYTES_MAX)):
        parsed({"env": {"A": "ü" * 32_768, "B": "x"}})


def test_env_values_are_shown_nowhere():
    request = parsed({"env": {"TOKEN": "s3cret"}})

    assert "s3cret" not in f"{request!r} {request}"


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        ({}, {"ttlSeconds": 0}, "a default that is spelled out"),
        ({}, {"labels": {}, "env": {}, "capabilities": []}, "empty is absent"),
        ({"labels": {"a": "1", "b": "2"}}, {"labels": {"b": "2", "a": "1"}}, "the order of keys"),
        ({}, {"projectId": "proj_1"}, "the project, which the key belongs to anyway"),
        ({"resources": {"cpu": 1}}, {"resources": {"cpu": 1.0}}, "how a number is written"),
    ],
)
def test_the_same_request_has_the_same_digest(one: dict[str, Any], other: dict[str, Any], why: str):
    assert parsed(one).digest() == parsed(other).digest(), why


@pytest.mark.parametrize(
    "other",
    [
        {"template": "python"},
        {"ttlSeconds": 60},
        {"labels": {"a": "1"}},
        {"env": {"A": "1"}},
        {"queueTimeoutSeconds": 0},
        {"priority": 1},
        {"resources": {"cpu": 1}},
        {"placement": {"allowedPools": ["pool"]}},
        {"capabilities": ["exec"]},
        {"image": "python"},
    ],
)
def test_another_request_has_another_digest(other: dict[str, Any]):
    assert parsed(other).digest() != parsed({}).digest()


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.text(st.characters(codec="ascii", categories=["L"]))))
def test_a_digest_does_not_depend_on_order(labels: dict[str, str]):
    backwards = dict(reversed(labels.items()))

    assert parsed({"labels": labels}).digest() == parsed({"labels": backwards}).digest()


@pytest.mark.parametrize(
    "body", [{"ttlSeconds": 0}, {"ttlSeconds": -5}, {"status": "running"}, {"labels": {"differently.dev/x": "1"}}]
)
def test_an_update_is_as_strict(body: dict[str, Any]):
    with pytest.raises(ValidationError):
        UpdateSandbox.model_validate(body)


# What callers see.


def test_a_view_speaks_camel_case_and_units():
    shown = SandboxView.of(a_sandbox()).model_dump(mode="json", by_alias=True, exclude_none=True)

    assert shown["resources"] == {"cpu": 1.0, "memoryMiB": 512, "diskGiB": 1}
    assert (shown["ttlSeconds"], shown["createdAt"]) == (3600, "2026-01-01T12:00:00Z")


def test_a_backends_own_id_is_for_operators():
    sandbox = a_sandbox(backend_ref="i-123")

    assert SandboxView.of(sandbox).backend_ref is None
    assert SandboxView.of(sandbox, operator=True).backend_ref == "i-123"


def test_reasons_for_waiting_are_shown_while_it_waits():
    rejections = (PoolRejection(pool="pool", reason="full"),)

    waiting = SandboxView.of(a_sandbox(status=Status.QUEUED, rejections=rejections, queue_deadline=NOON))
    running = SandboxView.of(a_sandbox(rejections=rejections, queue_deadline=NOON))

    assert [entry.reason for entry in waiting.waiting_for] == ["full"]
    assert waiting.queue_deadline == NOON
    assert (running.waiting_for, running.queue_deadline) == ([], None)
