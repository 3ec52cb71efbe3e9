"""Secrets that come on standard input: all of them arrives, or nothing does."""

from __future__ import annotations

import io

import pytest
import typer

from differently.cli.given import secret_values, whole_secret

PEM = "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("given", "kept"), [(PEM, PEM), ("token\n", "token"), ("token\r\n", "token"), ("token", "token")]
)
def test_a_secret_of_many_lines_is_kept_whole_and_one_line_loses_its_end(
    monkeypatch: pytest.MonkeyPatch, given: str, kept: str
) -> None:
    """A newcomer's private key was kept as its first line, and nobody was told."""
    monkeypatch.setattr("sys.stdin", io.StringIO(given))
    assert whole_secret("pem") == kept
    monkeypatch.setattr("sys.stdin", io.StringIO(given))
    assert secret_values(["pem"]) == {"pem": kept}


@pytest.mark.parametrize("given", ["", "one\n", "one\ntwo\nthree\n"])
def test_too_few_or_too_many_lines_are_refused(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(given))
    with pytest.raises(typer.BadParameter):
        secret_values(["a", "b"])


def test_each_of_several_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo\n"))
    values = secret_values(["a", "b"])
    assert values == {"a": "one", "b": "two"}
