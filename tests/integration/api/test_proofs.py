"""A key that is wrong, unknown, revoked or expired takes the same way: shown by the calls it makes, not by a clock."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from differently_core.errors import Unauthenticated
from differently_core.model.tenancy import KeyScope
from differently_core.operations import keys
from tests.support.api import BOOT, World

NOBODYS = "01JBM2YPQ8A2C4E6G1J3K5M7NP"


class Way:
    """What was called, in which order, and on how much."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self._watch(monkeypatch, world.store, "get", lambda record, key: f"get {record.__name__}")
        self._watch(monkeypatch, hmac, "new", lambda key, text, how: f"digest of {len(text)} under {len(key)}")
        self._watch(monkeypatch, hmac, "compare_digest", lambda one, other: f"compare {len(one)} with {len(other)}")

    def _watch(self, monkeypatch: pytest.MonkeyPatch, place: Any, name: str, told: Callable[..., str]) -> None:
        real = getattr(place, name)

        def heard(*arguments: Any, **options: Any) -> Any:
            self.calls.append(told(*arguments, **options))
            return real(*arguments, **options)

        monkeypatch.setattr(place, name, heard)

    def of(self, world: World, token: str) -> tuple[list[str], str]:
        self.calls.clear()
        with pytest.raises(Unauthenticated) as refused:
            keys.prove(world.core, world.peppers, token)
        return list(self.calls), refused.value.message


def wrong(token: str) -> str:
    """The same key with another secret."""
    prefix, identity, secret = token.split("_", 2)
    return f"{prefix}_{identity}_{secret[::-1]}"


def unknown(token: str) -> str:
    """The same secret for a key that there is not."""
    prefix, _, secret = token.split("_", 2)
    return f"{prefix}_{NOBODYS}_{secret}"


def test_what_is_wrong_with_a_key_does_not_show_in_the_way_it_takes(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, revoked = memory.tenant("good").token, memory.tenant("revoked").token
    keys.revoke_key(memory.core, BOOT, "key_" + revoked.split("_")[1])
    ends = memory.core.clock.now() + timedelta(seconds=1)
    expired = keys.create_key(memory.core, memory.peppers, BOOT, "x", KeyScope.OPERATOR, expires_at=ends).token
    memory.clock.advance(1)
    way = Way(memory, monkeypatch)
    guesses = [way.of(memory, token) for token in (unknown(good), wrong(good), wrong(revoked), wrong(expired))]
    assert guesses[0][0] == ["get ApiKey", "digest of 64 under 32", "compare 64 with 64"]
    assert all(guess == guesses[0] for guess in guesses), "nobody learns which keys there are"
    proven = [way.of(memory, token) for token in (revoked, expired)]
    assert all(calls == guesses[0][0] for calls, _ in proven), "and who has the secret takes no other way"


def test_a_pepper_that_was_taken_away_is_no_other_way(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that it signed are wrong from then on, and look like any that are."""
    token = memory.tenant().token
    memory.peppers = keys.Peppers({2: b"q" * 32})
    way = Way(memory, monkeypatch)
    assert way.of(memory, token) == way.of(memory, unknown(token))
