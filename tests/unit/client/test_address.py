"""Where a key may go: https, or this machine by its real name."""

from __future__ import annotations

import pytest

from differently._address import address
from differently._failure import ConfigurationError
from differently._request import at


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://localhost:8080/", "http://localhost:8080"),
        ("http://LOCALHOST", "http://localhost"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("http://127.0.0.2:1", "http://127.0.0.2:1"),
    ],
)
def test_this_machine_may_be_called_unencrypted(text: str, url: str) -> None:
    found = address(text)
    assert (found.url, found.is_loopback) == (url, True)


@pytest.mark.parametrize(
    "text",
    [
        "https://sandboxes.example.com",
        "https://127.0.0.1.example.com",
        "https://localhost.example.com",
        "https://10.0.0.1",
        "https://0.0.0.0",
        "https://[::ffff:127.0.0.1]",
        "https://127.1",
        "https://2130706433",
        "https://127.0.0.1.",
        "https://abc.execute-api.eu-central-1.amazonaws.com/live",
    ],
)
def test_another_machine_is_not_this_one(text: str) -> None:
    found = address(text)
    assert (found.url, found.is_loopback) == (text, False)


@pytest.mark.parametrize(
    "text",
    [
        "http://sandboxes.example.com",
        "http://127.0.0.1.example.com:8080",
        "http://localhost.example.com",
        "http://127.1",
        "http://0.0.0.0:8080",
        "http://[::ffff:127.0.0.1]:8080",
    ],
)
def test_a_key_goes_unencrypted_to_no_other_machine(text: str) -> None:
    with pytest.raises(ConfigurationError, match="unencrypted"):
        address(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "localhost:8080", "ftp://localhost", "http://", "http://127.0.0.1@evil.example",
        "http://127.0.0.1:8080@evil.example", "http://user:secret@localhost", "http://evil.example\\@127.0.0.1",
        "http://127.0.0.1\\.evil.example", "http://127.0.0.1 .evil.example", "http://127.0.0.1\t", "\nhttp://localhost",
        "http://localhost:port", "http://localhost:99999", "http://localhost?x=1", "http://localhost#@evil.example",
        "http://127.0.0.1%2eevil.example", "http://ｌocalhost", "http://[::1", "http://[::1]evil.example",
    ],
)  # fmt: skip
def test_what_two_readers_could_read_differently_is_refused(text: str) -> None:
    if text.strip() != text:
        text = text.replace("\n", "http://evil.example\n").replace("\t", "\tx")
    with pytest.raises(ConfigurationError) as refusal:
        address(text)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    "text", ["https://api.example/live/v1", "https://api.example/live/v1/", "https://api.example/live/"]
)
def test_a_version_at_the_end_is_not_asked_for_twice(text: str) -> None:
    """A newcomer gave `…/v1` and was told that there is no path `/v1/v1/sandboxes`."""
    assert address(text).url == "https://api.example/live"


def test_a_key_in_the_place_of_an_id_is_neither_sent_nor_repeated() -> None:
    """`differently key rotate $KEY` put the key into a path, an error and a terminal."""
    with pytest.raises(ConfigurationError) as refused:
        at("/v1/api-keys/{}/rotate", "dk_canary_canary")
    assert "canary" not in str(refused.value)
