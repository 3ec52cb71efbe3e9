"""Settings come from named variables, and a wrong one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from differently_local.environment import isolate
from differently_local.failure import StartFailure
from differently_local.settings import CHECKOUT, Settings, read


def test_everything_has_a_default() -> None:
    settings = read({})
    assert (settings.host, settings.port, settings.log_format) == ("127.0.0.1", 8080, "text")
    assert settings.data_dir == CHECKOUT / ".differently"


def test_every_setting_is_in_the_reference_with_its_default() -> None:
    rows = (CHECKOUT / "docs" / "reference" / "make-run.md").read_text(encoding="utf-8").splitlines()
    defaults = read({})
    for name, field in Settings.model_fields.items():
        (row,) = [row for row in rows if row.startswith(f"| `{field.alias}` |")]
        default = getattr(defaults, name)
        shown = default.relative_to(CHECKOUT) if isinstance(default, Path) else default
        assert (f"`{shown}`" if shown else "none") in row


def test_variables_change_it(tmp_path: Path) -> None:
    settings = read(
        {"PORT": "0", "HOST": "localhost", "DIFFERENTLY_DATA_DIR": str(tmp_path), "LOG_FORMAT": "json", "OTHER": "x"}
    )
    assert (settings.host, settings.port, settings.log_format) == ("127.0.0.1", 0, "json")
    assert settings.data_dir == tmp_path


def test_an_empty_variable_is_as_good_as_none() -> None:
    """`make` exports PORT whether it is set or not."""
    assert read({"PORT": ""}).port == 8080


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALLOWED_ORIGINS", "localhost"),
        ("PORT", "http"),
        ("PORT", "70000"),
        ("PORT", "-1"),
        ("LOG_FORMAT", "xml"),
        ("LOG_LEVEL", "loud"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: str) -> None:
    with pytest.raises(StartFailure, match=f"{name}={value}"):
        read({name: value})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "127.0.0.1.example.org"])
def test_only_loopback_is_served(host: str) -> None:
    with pytest.raises(StartFailure, match="loopback"):
        read({"HOST": host})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1"])
def test_any_loopback_address_will_do(host: str) -> None:
    assert read({"HOST": host}).host == host


def test_nothing_of_the_shells_reaches_an_aws_client() -> None:
    environ = {
        "AWS_PROFILE": "real", "AWS_SECRET_ACCESS_KEY": "real", "AWS_ENDPOINT_URL_DYNAMODB": "https://real",
        "BOTO_CONFIG": "x", "PATH": "/bin", "HTTPS_PROXY": "http://proxy", "no_proxy": "example.org",
    }  # fmt: skip
    isolate(environ)
    assert not any("real" in value for value in environ.values())
    assert environ["PATH"] == "/bin"
    assert environ["HTTPS_PROXY"] == "http://proxy"
    assert environ["no_proxy"] == "example.org,127.0.0.1,localhost,::1"
