"""Backends stream JSON by lines or frames, and any of it may be made to hurt: it is an answer, or one of our errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

import pytest

from differently_adapters import envd
from differently_adapters.execd import stream as execd
from differently_adapters.http.answers import JSON_DEPTH_MAX, BadAnswer, parse_json
from differently_adapters.http.redaction import Secrets
from differently_adapters.providers.blaxel import process as blaxel
from differently_adapters.providers.boat import shell as boat
from differently_adapters.providers.morph import shell as morph
from differently_adapters.providers.vercel import session as vercel
from differently_core.errors import DifferentlyError

Read = Callable[[bytes], object]
DEPTHS = (JSON_DEPTH_MAX, 300, 600, 990, 5_000, 50_000, 200_000)
LONE = '"\\ud83d"'
"""Half of a pair, which JSON can spell and UTF-8 cannot."""


def framed(line: bytes) -> Iterator[bytes]:
    yield bytes([0]) + len(line).to_bytes(4, "big") + line


def drained(read: Callable[[Iterator[bytes]], Iterable[object]]) -> Read:
    return lambda line: list(read(iter([line])))


READERS: dict[str, Read] = {
    "blaxel": drained(blaxel.stdout_of),
    "boat": lambda line: boat._frame(line, 0),
    "envd": lambda line: list(envd._stdout(framed(line))),
    "execd": lambda line: execd._event(line),
    "morph": lambda line: morph._event(line),
    "vercel": drained(vercel.stdout_of),
}
LINES: dict[str, bytes] = {
    "nothing": b"{}",
    "no object": b"[1]",
    "a number": b"1",
    "no number": b'{"type": NaN, "stream": NaN}',
    "digits": b'{"type": ' + b"9" * 5_000 + b"}",
    "cut": b'{"type": "stdout", "data": "x',
    "no text": b'{"type": "\xff\xfe"}',
    "a list for a word": b'{"type": [], "stream": {}, "data": [], "text": 1, "content": 1, "error": 1}',
    **{
        f"{name} {value[:8]}": f'{{"type": "stdout", "stream": "stdout", "{name}": {value}}}'.encode()
        for name in ("data", "text", "content")
        for value in (LONE, "null", "true", '"\\u0000"', json.dumps("x" * 100_000))
    },
    **{f"lists {depth} deep": b'{"type": "stdout", "data": ' + b"[" * depth + b"]" * depth + b"}" for depth in DEPTHS},
    **{f"objects {depth} deep": b'{"data":' * depth + b"1" + b"}" * depth for depth in DEPTHS},
    **{f"opened {depth} times": b'{"data":' + b"[" * depth for depth in DEPTHS},
}


@pytest.mark.parametrize("line", LINES.values(), ids=list(LINES))
@pytest.mark.parametrize("reader", READERS)
def test_a_line_that_is_made_to_hurt_is_refused_by_an_error_of_ours(reader: str, line: bytes) -> None:
    """A line that nested deep, or held half a character, came out as a fault of our own: RecursionError, Unicode…"""
    with suppress(DifferentlyError):
        READERS[reader](line)


@pytest.mark.parametrize("stdout_of", [blaxel.stdout_of, vercel.stdout_of], ids=["blaxel", "vercel"])
def test_half_a_character_is_output_all_the_same(stdout_of: Callable[[Iterator[bytes]], Iterator[bytes]]) -> None:
    line = f'{{"type": "stdout", "stream": "stdout", "data": {LONE}}}'.encode()
    assert b"".join(stdout_of(iter([line]))).strip() == b"?"


@pytest.mark.parametrize("depth", DEPTHS)
def test_an_answer_nests_no_deeper_than_its_bound_however_full_the_stack_is(depth: int) -> None:
    """With an escape in it an answer is walked for secrets; 600 levels parsed, and the walk came to nothing."""
    raw = b'["\\u0041",' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"]"
    if depth > JSON_DEPTH_MAX:
        with pytest.raises(BadAnswer):
            parse_json(raw)
        return
    assert json.dumps(Secrets(["a secret of ours"]).redact_json(parse_json(raw), raw)).count("[") == depth


def test_brackets_in_texts_are_no_depth() -> None:
    assert parse_json(json.dumps(["[" * 500, "{" * 500]).encode()) == ["[" * 500, "{" * 500]
