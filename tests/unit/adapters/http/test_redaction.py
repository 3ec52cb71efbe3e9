"""A credential does not come through, whatever a backend made of it."""

from __future__ import annotations

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from differently_adapters.http import REDACTED, Secrets

KEY = 'dly_live_7f/3+"9<k>&\\é=Zq8WvT'


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        KEY.upper(),
        KEY.lower(),
        quote(KEY, safe=""),
        quote(KEY),
        quote(KEY, safe="").lower(),
        quote_plus(KEY),
        json.dumps(KEY)[1:-1],
        json.dumps(KEY, ensure_ascii=False)[1:-1],
        html.escape(KEY),
        repr(KEY),
        KEY.encode().hex(),
    ],
)
def test_every_form_of_it_goes(form: str) -> None:
    shown = Secrets([KEY]).redact(f"before {form} after")
    assert REDACTED in shown
    assert form not in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")


@pytest.mark.parametrize("user", ["", "u", "us", "user"])
def test_inside_basic_authentication_it_goes(user: str) -> None:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        header = encode(f"{user}:{KEY}:".encode()).decode()
        shown = Secrets([KEY]).redact(f"Authorization: Basic {header}")
        rest = shown.partition("Basic ")[2].replace(REDACTED, "")
        assert len(rest) <= 16


@given(st.integers(0, 15), st.integers(16, 28))
def test_a_piece_that_was_cut_off_goes(start: int, end: int) -> None:
    piece = KEY[start:end]
    shown = Secrets([KEY]).redact(f"Incorrect key: {piece}...")
    assert all(piece[at : at + 12] not in shown for at in range(max(1, len(piece) - 11))) or len(piece) < 12


def test_words_that_only_look_alike_stay() -> None:
    assert Secrets([KEY]).redact("dly_live is a prefix") == "dly_live is a prefix"


def test_a_value_added_later_goes_as_well() -> None:
    secrets = Secrets(["first-secret-value"])
    secrets.add("second-secret-value", "")
    assert secrets.redact("first-secret-value second-secret-value") == f"{REDACTED} {REDACTED}"


def test_a_long_text_without_it_is_searched_quickly() -> None:
    value = "line\n" * 500_000
    assert Secrets([KEY]).redact_json(value, b"\\") is value


def test_without_secrets_text_is_as_it_was() -> None:
    assert Secrets().redact("x" * 100_000) == "x" * 100_000


def test_parsed_json_holds_none() -> None:
    secrets = Secrets([KEY])
    body = {"a": [f"Bearer {KEY}", 1, None, True], KEY: {"b": "fine"}}
    for raw in (json.dumps(body), json.dumps(body, ensure_ascii=False), "".join(escaped(json.dumps(body)))):
        redacted = secrets.redact_json(json.loads(raw), raw.encode())
        assert redacted == {"a": [f"Bearer {REDACTED}", 1, None, True], REDACTED: {"b": "fine"}}


def escaped(text: str) -> list[str]:
    """Letters as \\u escapes, which JSON permits."""
    return [f"\\u{ord(char):04x}" if char in "_Zq8W" else char for char in text]


@given(st.text(min_size=1, max_size=40), st.text(max_size=60), st.text(max_size=60))
def test_no_value_survives_anywhere(secret: str, before: str, after: str) -> None:
    shown = Secrets([secret]).redact(before + secret + after)
    assert secret.lower() not in shown.lower().replace(REDACTED, "") or secret.lower() in (before + after).lower()
