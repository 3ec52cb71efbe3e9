"""The rehearsal's commands are those that deploy to an account, so they are given to nothing but this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rehearsal.cloud import Cloud, NotLoopback, require_loopback


@pytest.mark.parametrize(
    "endpoint",
    [
        "", "https://cloudformation.us-east-1.amazonaws.com", "http://10.0.0.1:4566", "http://0.0.0.0:4566",
        "http://localhost:4566", "http://127.0.0.1.example:4566", "http://169.254.169.254", "127.0.0.1:4566",
        "http://127.0.0.1@example.com:4566", "https://127.0.0.1:4566",
    ],
)  # fmt: skip
def test_what_could_be_anything_but_this_machine_is_refused(endpoint: str, tmp_path: Path) -> None:
    with pytest.raises(NotLoopback):
        Cloud(endpoint, tmp_path, tmp_path)


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:4566", "http://[::1]:4566", "http://127.9.9.9:1"])
def test_this_machine_is_taken(endpoint: str) -> None:
    assert require_loopback(endpoint) == endpoint


def test_nothing_of_the_caller_s_shell_reaches_a_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hostile = {
        "AWS_PROFILE": "production", "AWS_SESSION_TOKEN": "canary", "AWS_ENDPOINT_URL": "https://example.com",
        "AWS_ENDPOINT_URL_CLOUDFORMATION": "https://example.com", "CDK_DEFAULT_ACCOUNT": "123456789012",
        "HTTPS_PROXY": "http://192.0.2.1:1", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true",
    }  # fmt: skip
    for name, value in hostile.items():
        monkeypatch.setenv(name, value)
    environment = Cloud("http://127.0.0.1:4566", tmp_path, tmp_path).environment
    assert environment["AWS_ENDPOINT_URL"] == "http://127.0.0.1:4566"
    assert not (set(hostile) - {"AWS_ENDPOINT_URL"}) & set(environment)
