"""Credentials taken out of text by their value, wherever a backend put them: body, header, URL, exception.

A backend may echo a key as it came, percent-encoded, escaped for JSON or HTML, or inside base64; all these forms are
looked for. A key that was cut off (by the backend, or by a bound of ours) leaves no long piece of itself either.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, quote_plus

from pydantic import JsonValue

REDACTED: Final = "[redacted]"
PIECE_CHARACTERS: Final = 12
"""A run of a secret that is as long as this goes as well, when the secret is long enough for that to mean something."""
PIECES_FROM: Final = 16
TEXT_CHARACTERS_MAX: Final = 65_536
"""Longer text is cut before it is searched; nothing that is shown is ever near that."""


class Secrets:
    """What must not be told. Values may be added later, such as a token that was refreshed."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: frozenset[str] = frozenset()
        self._forms: tuple[tuple[str, bytes], ...] = ()
        self._pattern: re.Pattern[str] | None = None
        self._pieces: frozenset[str] = frozenset()
        self.add(*values)

    def add(self, *values: str) -> None:
        new = {value for value in values if value} - self._values
        if not new:
            return
        everything = self._values | new
        forms = {form for value in everything for form in _forms(value)}
        longest_first = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(re.escape(form) for form in longest_first), re.IGNORECASE)
        self._pieces = frozenset(piece for value in everything for piece in _pieces(value))
        self._forms = tuple((form, form.encode()) for form in longest_first)
        self._values = everything

    def and_also(self, values: Iterable[str]) -> Secrets:
        """These and more, for those who meet the others too; itself when there are none."""
        more = [*values]
        return Secrets([*self._values, *more]) if more else self

    def redact(self, text: str) -> str:
        """The text without any secret in any form."""
        if self._pattern is None:
            return text
        return self._without_pieces(self._pattern.sub(REDACTED, text[:TEXT_CHARACTERS_MAX]))

    def may_be_in(self, raw: bytes) -> bool:
        """Whether JSON may hold one; escapes hide what they spell."""
        return b"\\" in raw or any(form in raw for _, form in self._forms)

    def redact_json(self, value: JsonValue, raw: bytes) -> JsonValue:
        """The same for what was parsed from `raw`, which tells cheaply whether there is anything to do."""
        return self._walk(value) if self.may_be_in(raw) else value

    def _walk(self, value: JsonValue) -> JsonValue:
        match value:
            case str():
                return self._replaced(value)
            case list():
                return [self._walk(entry) for entry in value]
            case dict():
                return {self._replaced(key): self._walk(entry) for key, entry in value.items()}
            case _:
                return value

    def _replaced(self, text: str) -> str:
        # Looking for words is hundreds of times faster than the pattern, and a megabyte of output is no rarity.
        if self._pattern is None or not any(form in text for form, _ in self._forms):
            return text
        return self._pattern.sub(REDACTED, text)

    def _without_pieces(self, text: str) -> str:
        if not self._pieces:
            return text
        folded = text.lower()
        if len(folded) != len(text):  # a character that has no lower case of its own length: positions would not match
            folded = text
        hits = [at for at in range(len(folded)) if folded[at : at + PIECE_CHARACTERS] in self._pieces]
        kept: list[str] = []
        end = 0
        for at in hits:
            if at >= end:
                kept += [text[end:at], REDACTED]
            end = at + PIECE_CHARACTERS
        return "".join([*kept, text[end:]])


def _forms(value: str) -> set[str]:
    quoted = quote(value, safe="")
    return {
        value, quoted, quoted.lower(), quote(value), quote_plus(value), html.escape(value), repr(value)[1:-1],
        json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], value.encode().hex(), *_encoded(value),
    }  # fmt: skip


def _encoded(value: str) -> set[str]:
    """The characters of a base64 text that depend on nothing but the value, wherever the value begins in it."""
    found = set()
    data = value.encode()
    for before in range(3):
        text = base64.b64encode(bytes(before) + data).decode()
        inner = text[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
        if len(inner) >= PIECE_CHARACTERS:
            found |= {inner, inner.replace("+", "-").replace("/", "_")}
    return found


def _pieces(value: str) -> set[str]:
    if len(value) < PIECES_FROM:
        return set()
    folded = value.lower()
    return {folded[at : at + PIECE_CHARACTERS] for at in range(len(folded) - PIECE_CHARACTERS + 1)}
