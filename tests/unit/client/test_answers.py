"""Answers and objects of servers that are newer, older, or no such server at all."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest

from differently import errors
from differently._answer import document, failure
from differently._failure import ApiError, UnexpectedAnswer
from differently.commands import Exit, Lines, Output, result_of
from differently.models import KeyView, NewKeyView, PoolDetailView, SandboxView

SANDBOX = {
    "id": "sbx_1", "org": "org_1", "project": "proj_1", "status": "running", "template": "default",
    "resources": {"cpu": 2, "memoryMiB": 512, "diskGiB": 1}, "ttlSeconds": 60, "effective": {"ttlSeconds": 60},
    "createdAt": "2026-11-02T09:30:00.123456789Z", "createdBy": "key_1",
}  # fmt: skip


def error(code: str, status: int = 400, **more: object) -> ApiError:
    found = failure(status, {}, json.dumps({"error": {"code": code, "message": "m", **more}}).encode())
    assert isinstance(found, ApiError)
    return found


@pytest.mark.parametrize("kind", errors.BY_CODE.values(), ids=lambda kind: kind.code)
def test_every_code_has_a_class(kind: type[ApiError]) -> None:
    found = error(kind.code, details={"field": "x"}, requestId="req-1")
    assert type(found) is kind
    assert (found.code, found.details, found.request_id) == (kind.code, {"field": "x"}, "req-1")
    assert str(found) == f"m ({kind.code}, request req-1)"


def test_a_code_of_a_newer_server_is_an_error_all_the_same() -> None:
    found = error("budget_burst", 418, requestId="req-1")
    assert type(found) is ApiError
    assert (found.code, found.status, found.advice) == ("budget_burst", 418, None)


def test_classes_are_related_as_on_the_server() -> None:
    assert issubclass(errors.QueueFull, errors.QuotaExceeded)
    assert issubclass(errors.IdempotencyConflict, errors.InvalidState)


@pytest.mark.parametrize(
    "body", [b"", b"<html>502</html>", b"[]", b'"x"', b'{"error": "x"}', b'{"message": "x"}', b"\xff"]
)
def test_what_is_no_error_of_this_api_is_told_as_such(body: bytes) -> None:
    found = failure(502, {}, body)
    assert isinstance(found, UnexpectedAnswer)
    assert "502" in str(found)


def test_a_redirect_is_told_and_not_followed() -> None:
    assert "https://evil.example" in str(failure(302, {"location": "https://evil.example"}, b""))


def test_a_wait_that_fails_late_is_an_error_although_its_status_is_200() -> None:
    with pytest.raises(errors.NotFound):
        document(200, b'   {"error": {"code": "not_found", "message": "gone", "details": {}, "requestId": "r"}}')


def test_unknown_fields_and_words_break_nothing() -> None:
    """A client of today meets a server of tomorrow."""
    newer = {**SANDBOX, "status": "hibernating", "moons": [1], "resources": {**SANDBOX["resources"], "gpu": 8}}  # type: ignore[dict-item]
    found = SandboxView.from_dict(newer)
    assert (found.status, found.resources.memory_mib) == ("hibernating", 512)
    assert found.to_dict() == newer


def test_what_is_absent_is_none_or_empty() -> None:
    found = SandboxView.from_dict(SANDBOX)
    assert (found.pool, found.labels, found.waiting_for, found.attempts) == (None, {}, [], 0)
    assert found.conditions.seen is None
    assert found.created_at == datetime(2026, 11, 2, 9, 30, 0, 123456, tzinfo=timezone.utc)
    assert found.classification == "default"


def test_objects_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="cannot be changed"):
        SandboxView.from_dict(SANDBOX).status = "paused"


def test_names_of_the_wire_are_plain_here() -> None:
    pool = PoolDetailView.from_dict({"name": "main", "costModel": {"memoryGiBHour": 0.5}})
    assert pool.cost_model.memory_gib_hour == 0.5


def test_a_key_is_in_no_representation() -> None:
    made = NewKeyView.from_dict({"id": "key_1", "name": "n", "scope": "tenant", "token": "dk_secret"})
    assert made.token == "dk_secret"
    assert "dk_secret" not in repr(made)
    assert "key_1" in repr(KeyView.from_dict({"id": "key_1"}))


# The lines of a stream


def lines(*found: object) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in found)


def test_a_stream_cut_anywhere_gives_the_same_events() -> None:
    whole = (
        lines({"stream": "stdout", "data": "w6Q="}) + b"\n"
        + lines({"stream": "stderr", "data": "/w=="}, {"exitCode": 3, "durationMs": 5})
    )  # fmt: skip
    expected = [Output("stdout", b"\xc3\xa4", "ä"), Output("stderr", b"\xff", "\ufffd"), Exit(3, 5)]
    for size in range(1, len(whole) + 1):
        reader = Lines()
        found = [event for at in range(0, len(whole), size) for event in reader.events(whole[at : at + size])]
        reader.close()
        assert found == expected


def test_a_character_cut_in_two_arrives_whole() -> None:
    reader = Lines()
    found = list(reader.events(lines({"stream": "stdout", "data": "4oI="}, {"stream": "stdout", "data": "rA=="})))
    assert [event.text for event in found if isinstance(event, Output)] == ["", "€"]


def test_a_stream_without_its_end_is_no_success() -> None:
    reader = Lines()
    list(reader.events(lines({"stream": "stdout", "data": "YQ=="}) + b'{"exitCode": 0'))
    with pytest.raises(errors.StreamCut):
        reader.close()


def test_an_error_at_the_end_of_a_stream_keeps_its_code() -> None:
    reader = Lines()
    with pytest.raises(errors.ExecUnconfirmed) as raised:
        list(reader.events(lines({"error": {"code": "exec_unconfirmed", "message": "m", "requestId": "r"}})))
    assert raised.value.request_id == "r"
    reader.close()


def test_nothing_comes_after_the_end_and_unknown_lines_are_passed_over() -> None:
    reader = Lines()
    found = list(
        reader.events(lines({"heartbeat": 1}, {"exitCode": 0}, {"stream": "stdout", "data": "YQ=="}, {"exitCode": 1}))
    )
    assert found == [Exit(0)]


def test_a_line_without_end_is_refused_before_memory_is() -> None:
    reader = Lines()
    for _ in range(8):
        assert list(reader.events(b"x" * 1_048_576)) == []
    with pytest.raises(UnexpectedAnswer, match="longer than"):
        list(reader.events(b"x"))


def test_a_result_is_bytes_and_text() -> None:
    found = result_of({"exitCode": 0, "stdout": "/2E=", "stderr": "", "durationMs": 1, "newer": True})
    assert (found.stdout_bytes, found.stdout, found.ok) == (b"\xffa", "\ufffda", True)
