"""The configuration is checked as a whole, and what is wrong is named."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from differently_infra.configuration import Configuration, Unusable, described, parse, read, sections

ROOT = Path(__file__).parents[3]


def test_nothing_is_a_whole_configuration(tmp_path: Path) -> None:
    empty = tmp_path / "deployment.toml"
    empty.write_text("")
    assert read(empty) == read(None) == Configuration()


def test_keys_are_read_as_they_are_written_down(tmp_path: Path) -> None:
    path = tmp_path / "deployment.toml"
    path.write_text('name = "my-boxes"\n[network]\nvpc = true\nnatGateways = 2\n[tags]\nowner = "us"\n')
    found = read(path)
    assert (found.prefix, found.network.nat_gateways, found.tags) == ("MyBoxes", 2, {"owner": "us"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"nam": "x"}, "there is no key nam"),
        ({"network": {"nat_gateway": 1}}, "there is no key network.nat_gateway"),
        ({"network": {"natGateways": 9}}, "network.natGateways: "),
        ({"name": "Ünï"}, "name: "),
        ({"name": "x" * 40}, "name: "),
        ({"api": {"allowedOrigins": ["http://x.example"]}}, "api.allowedOrigins.0: "),
        ({"logs": {"days": 31}}, "logs.days: "),
        ({"data": {"maxReadUnits": 0}}, "data.maxReadUnits: "),
        ({"api": {"requestsPerSecond": 10_000, "burst": 1}}, "api.burst is less than a tenth"),
        ({"alarms": {"email": "nobody"}}, "alarms.email: "),
    ],
)
def test_a_wrong_key_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(Unusable, match=r"^deployment\.toml: ") as caught:
        parse(given, "deployment.toml")
    assert said in str(caught.value)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(Unusable) as caught:
        parse({"nam": 1, "logs": {"level": "LOUD"}}, "x")
    assert "there is no key nam" in str(caught.value)
    assert "logs.level" in str(caught.value)


@pytest.mark.parametrize("text", ["name =", "\xff\xfe", "a = 1\na = 2"])
def test_what_is_no_toml_is_said(tmp_path: Path, text: str) -> None:
    path = tmp_path / "deployment.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(Unusable, match="is not TOML"):
        read(path)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="cannot be read"):
        read(tmp_path / "nothing.toml")


@pytest.mark.parametrize("path", sorted((ROOT / "infra" / "configurations").glob("*.toml")), ids=lambda path: path.stem)
def test_what_ships_can_be_read(path: Path) -> None:
    assert read(path) != Configuration()


def test_each_key_says_what_it_is() -> None:
    for name, section in sections():
        assert section.__doc__
        for key, _, text in described(section):
            assert len(text) > 10, f"{name}.{key}"


def test_what_the_guide_says_can_be_used() -> None:
    guide = (ROOT / "docs" / "how-to" / "deploy.md").read_text(encoding="utf-8")
    written = re.findall(r"```toml\n(.*?)```", guide, flags=re.DOTALL)
    assert len(written) >= 2
    for text in written:
        parse(tomllib.loads(text), "the guide")


def test_what_is_declared_is_checked_with_everything_else() -> None:
    pool = {"adapter": "remote", "trust": "private", "maxConcurrency": 1, "config": {"endpoint": "nonsense"}}
    with pytest.raises(Unusable, match="main: This endpoint cannot be used"):
        parse({"pools": {"main": pool}}, "test")
