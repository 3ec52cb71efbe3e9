"""Which server, with which key: from arguments, the environment, a login, or the `make run` of this folder.

An address and its key come from one source, or the key is given beside an address on purpose; a key that was found is
never sent to an address that was found elsewhere. The keys of `make run` go to this machine alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._address import address
from ._failure import ConfigurationError
from .logins import Logins

URL = "DIFFERENTLY_URL"
KEY = "DIFFERENTLY_API_KEY"
LOGIN = "DIFFERENTLY_LOGIN"
DATA_DIR = "DIFFERENTLY_DATA_DIR"
"""Where `make run` keeps its data, when that is not `.differently`."""
HOW = (
    "Say which server and key to use: `differently login`, or set DIFFERENTLY_URL and DIFFERENTLY_API_KEY, or start "
    "`make run` in this folder."
)


@dataclass(frozen=True)
class Settings:
    url: str
    api_key: str = field(repr=False)
    is_loopback: bool
    source: str
    """Where they come from, for people."""
    project: str | None = None
    """The project that operators' calls are about, where it is known."""


def resolve(
    url: str | None = None, api_key: str | None = None, login: str | None = None, *,
    environment: Mapping[str, str] = os.environ, folder: Path | None = None, operator: bool = False,
) -> Settings:  # fmt: skip
    """The first source that says anything; a ConfigurationError names what is missing. `operator` prefers that key."""
    if url or api_key:
        return _settings(url or environment.get(URL), api_key or environment.get(KEY), "arguments")
    if login is None and (environment.get(URL) or environment.get(KEY)):
        return _settings(environment.get(URL), environment.get(KEY), "environment")
    logins = Logins.of(environment)
    name = login or environment.get(LOGIN)
    found = logins.get(name)
    if found is not None:
        return _settings(found.url, found.api_key, f"login {found.name}", found.project)
    if name:
        known = ", ".join(logins.names()) or "none"
        raise ConfigurationError(f"There is no login {name!r}; known: {known}. Make it: differently login {name}")
    return _of_make_run((folder or Path.cwd()) / (environment.get(DATA_DIR) or ".differently") / "dev.json", operator)


def _settings(url: str | None, api_key: str | None, source: str, project: str | None = None) -> Settings:
    if not url:
        raise ConfigurationError(f"A key was given and no address. Set {URL} too.")
    if not api_key:
        raise ConfigurationError(f"An address was given and no key. Set {KEY} too.")
    if not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise ConfigurationError("The key holds a character that no key has; copy it again.")
    where = address(url)
    return Settings(where.url, api_key, where.is_loopback, source, project)


def _of_make_run(path: Path, operator: bool) -> Settings:
    try:
        # A file of somebody else's is no `make run` of ours: its keys are good for nothing here.
        if path.stat().st_uid != os.getuid():
            raise ConfigurationError(f"{path} belongs to somebody else and was not used. {HOW}")
        known: Any = json.loads(path.read_text(encoding="utf-8"))
        found = _settings(
            str(known["url"]),
            str(known["operatorKey" if operator else "tenantKey"]),
            "make run",
            known.get("projectId"),
        )
    except FileNotFoundError:
        raise ConfigurationError(f"No server was named. {HOW}") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigurationError(f"{path} could not be read; start `make run` again. {HOW}") from None
    if not found.is_loopback:
        raise ConfigurationError(f"{path} names another machine; keys of `make run` go to this one alone.")
    return found
