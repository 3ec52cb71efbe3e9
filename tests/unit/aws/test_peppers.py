"""Peppers are read when they are needed, and again when a newer version appears."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError

from differently_aws import peppers
from differently_core.errors import Internal
from differently_core.operations.keys import Peppers
from differently_core.runtime.clock import VirtualClock

OLD, NEW = "o" * 32, "n" * 32


class Secret:
    """A secret whose text a test changes, and which counts its reads."""

    def __init__(self, **versions: str) -> None:
        self.text: str | None = json.dumps({name.removeprefix("v"): value for name, value in versions.items()})
        self.reads = 0

    def client(self, service: str) -> Any:
        assert service == "secretsmanager"
        return self

    def get_secret_value(self, SecretId: str) -> Mapping[str, str]:
        self.reads += 1
        if self.text is None:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "canary"}}, "GetSecretValue")
        return {"SecretString": self.text}


def stored(secret: Secret, clock: VirtualClock | None = None, name: str | None = "arn") -> Peppers:
    return peppers.stored(secret, name, clock or VirtualClock())  # type: ignore[arg-type]


def test_nothing_is_read_before_the_first_key_and_once_for_all_after_it() -> None:
    secret = Secret(v1=OLD)
    made = stored(secret)
    assert secret.reads == 0
    assert made.digest("a", 1) == Peppers({1: OLD.encode()}).digest("a", 1)
    assert (made.newest, made.digest("b"), secret.reads) == (1, Peppers({1: OLD.encode()}).digest("b"), 1)


def test_a_key_under_a_newer_pepper_proves_in_a_container_that_started_before_it() -> None:
    clock = VirtualClock()
    secret = Secret(v1=OLD)
    made = stored(secret, clock)
    made.digest("a")
    secret.text = json.dumps({"1": OLD, "2": NEW})
    clock.advance(61)
    assert made.digest("a", 2) == Peppers({2: NEW.encode()}).digest("a", 2)
    assert (made.newest, secret.reads) == (2, 2)


def test_made_up_versions_do_not_make_it_read_each_time() -> None:
    clock = VirtualClock()
    secret = Secret(v1=OLD)
    made = stored(secret, clock)
    for version in range(2, 50):
        made.digest("a", version)
        clock.advance(1)
    assert secret.reads == 1
    clock.advance(60)
    made.digest("a", 99)
    assert secret.reads == 2


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"1": "short"}', '{"x": "' + OLD + '"}', OLD])
def test_a_damaged_secret_proves_nothing_and_is_quoted_nowhere(text: str) -> None:
    secret = Secret()
    secret.text = text
    with pytest.raises(Internal) as caught:
        stored(secret).digest("a")
    assert OLD not in repr(caught.value.__cause__) + str(caught.value)


def test_a_failed_read_is_tried_again_at_the_next_call() -> None:
    secret = Secret()
    secret.text = None
    made = stored(secret)
    with pytest.raises(Internal):
        made.digest("a")
    secret.text = json.dumps({"1": OLD})
    assert made.digest("a") == Peppers({1: OLD.encode()}).digest("a")


def test_a_function_that_was_told_of_no_secret_proves_nothing() -> None:
    secret = Secret(v1=OLD)
    with pytest.raises(Internal):
        stored(secret, name=None).digest("a")
    assert secret.reads == 0


def test_its_text_shows_no_pepper() -> None:
    made = stored(Secret(v1=OLD))
    made.digest("a")
    assert OLD not in repr(made)
