"""Where a key may go: https, or this machine by its real name."""

from __future__ import annotations

import pytest

from differently._address import address
from differently._failure import ConfigurationError


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
        "https://abc.execute-api.eu-central-1.amazonaws.com/v1",
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
