"""Where address and key come from, and what never goes together."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from differently._failure import ConfigurationError
from differently._settings import Settings, resolve
from differently.logins import Login, Logins

HOME = {"HOME": "/nowhere"}


def dev(folder: Path, url: str = "http://127.0.0.1:8080") -> Path:
    (folder / ".differently").mkdir()
    known = {"url": url, "tenantKey": "dk_tenant", "operatorKey": "dk_operator", "projectId": "proj_1"}
    (folder / ".differently" / "dev.json").write_text(json.dumps(known))
    return folder


def config(folder: Path, *logins: Login) -> dict[str, str]:
    environment = {"DIFFERENTLY_CONFIG": str(folder / "logins.json")}
    for login in logins:
        Logins.of(environment).put(login)
    return environment


def test_arguments_come_before_the_environment_and_that_before_profiles(tmp_path: Path) -> None:
    logins = config(tmp_path, Login("work", "https://work.example", "dk_work", "proj_9"))
    variables = {**logins, "DIFFERENTLY_URL": "https://env.example", "DIFFERENTLY_API_KEY": "dk_env"}
    dev(tmp_path)

    def told(*arguments: str, environment: dict[str, str]) -> tuple[str, str]:
        found = resolve(*arguments, environment=environment, folder=tmp_path)
        return found.url, found.api_key

    assert told("https://arg.example", "dk_arg", environment=variables) == ("https://arg.example", "dk_arg")
    assert told(environment=variables) == ("https://env.example", "dk_env")
    assert told(environment=logins) == ("https://work.example", "dk_work")
    assert told(environment=HOME) == ("http://127.0.0.1:8080", "dk_tenant")
    named = resolve(login="work", environment=variables, folder=tmp_path)
    assert (named.url, named.project) == ("https://work.example", "proj_9")


def test_a_key_that_was_found_goes_to_no_address_from_elsewhere(tmp_path: Path) -> None:
    """The keys of `make run` once went to whatever host was named."""
    logins = config(tmp_path, Login("work", "https://work.example", "dk_work"))
    dev(tmp_path)
    for environment in (logins, HOME):
        with pytest.raises(ConfigurationError, match="no key"):
            resolve("https://other.example", environment=environment, folder=tmp_path)
        with pytest.raises(ConfigurationError, match="no key"):
            resolve(environment={**environment, "DIFFERENTLY_URL": "https://other.example"}, folder=tmp_path)


@pytest.mark.parametrize("url", ["https://127.0.0.1.evil.example", "https://evil.example", "https://localhost.evil"])
def test_keys_of_make_run_stay_on_this_machine(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigurationError, match="another machine"):
        resolve(environment=HOME, folder=dev(tmp_path, url))


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give a file to somebody else")
def test_a_make_run_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    os.chown(dev(tmp_path) / ".differently" / "dev.json", 12345, 12345)
    with pytest.raises(ConfigurationError, match="somebody else"):
        resolve(environment=HOME, folder=tmp_path)


def test_an_operator_gets_the_operators_key(tmp_path: Path) -> None:
    assert resolve(environment=HOME, folder=dev(tmp_path), operator=True).api_key == "dk_operator"


def test_nothing_configured_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"differently login.*DIFFERENTLY_URL.*make run"):
        resolve(environment=HOME, folder=tmp_path)
    with pytest.raises(ConfigurationError, match=r"no login 'x'.*known: none"):
        resolve(login="x", environment=HOME, folder=tmp_path)


@pytest.mark.parametrize("key", ["dk_a b", "dk_a\n", "dk_\u200b"])
def test_a_key_that_was_copied_badly_is_told_without_the_key(key: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        resolve("http://localhost", key, environment={})
    assert "dk_" not in str(refusal.value)


def test_no_representation_holds_a_key() -> None:
    assert "dk_" not in repr(Settings("http://localhost", "dk_x", True, "arguments"))
    assert "dk_" not in repr(Login("a", "http://localhost", "dk_x"))


def test_logins_are_kept_and_readable_by_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "logins.json"
    logins = Logins(path)
    logins.put(Login("a", "https://a.example", "dk_a"))
    logins.put(Login("b", "https://b.example", "dk_b", "proj_1"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert (logins.names(), logins.current) == (["a", "b"], "b")
    logins.use("a")
    assert logins.get() == Login("a", "https://a.example", "dk_a")
    assert logins.get("b") == Login("b", "https://b.example", "dk_b", "proj_1")
    assert (logins.remove("a"), logins.remove("a"), logins.current) == (True, False, None)
    with pytest.raises(ConfigurationError, match="no login 'c'"):
        logins.use("c")


def test_a_damaged_file_of_logins_is_named_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "logins.json"
    path.write_text("{")
    with pytest.raises(ConfigurationError, match=r"logins\.json"):
        Logins(path).put(Login("a", "https://a.example", "dk_a"))
    assert path.read_text() == "{"
