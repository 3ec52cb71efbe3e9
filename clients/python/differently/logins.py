"""The file of logins that `differently login` keeps: an address and a key under a name, readable by you alone."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ._failure import ConfigurationError

FILE = "DIFFERENTLY_CONFIG"
DEFAULT = "default"


@dataclass(frozen=True)
class Login:
    name: str
    url: str
    api_key: str = field(repr=False)
    project: str | None = None


class Logins:
    """`current` is used where no login is named."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Logins:
        """DIFFERENTLY_CONFIG, or the user's folder for configuration."""
        if environment.get(FILE):
            return cls(Path(environment[FILE]))
        home = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".config")
        return cls(Path(home) / "differently" / "logins.json")

    def names(self) -> list[str]:
        return sorted(self._read()["logins"])

    @property
    def current(self) -> str | None:
        name = self._read().get("current")
        return str(name) if name else None

    def get(self, name: str | None = None) -> Login | None:
        """By name, or the current one."""
        content = self._read()
        wanted = name or content.get("current")
        entry = content["logins"].get(wanted)
        if not isinstance(entry, dict):
            return None
        try:
            return Login(str(wanted), str(entry["url"]), str(entry["apiKey"]), entry.get("project"))
        except KeyError as missing:
            raise ConfigurationError(
                f"Login {wanted!r} in {self.path} has no {missing}; log in again: differently login {wanted}"
            ) from None

    def put(self, login: Login) -> None:
        """Keep it under its name and make it the current one."""
        content = self._read()
        entry = asdict(login)
        content["logins"][login.name] = {
            "url": entry["url"], "apiKey": entry["api_key"], **({"project": login.project} if login.project else {})
        }  # fmt: skip
        content["current"] = login.name
        self._write(content)

    def use(self, name: str) -> None:
        content = self._read()
        if name not in content["logins"]:
            raise ConfigurationError(f"There is no login {name!r}; known: {', '.join(self.names()) or 'none'}.")
        content["current"] = name
        self._write(content)

    def remove(self, name: str) -> bool:
        """False when there was none."""
        content = self._read()
        if content["logins"].pop(name, None) is None:
            return False
        if content.get("current") == name:
            content["current"] = None
        self._write(content)
        return True

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {"logins": {}}
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"{self.path} cannot be read ({error.__class__.__name__}); mend or remove it."
            ) from None
        if not isinstance(content, dict) or not isinstance(content.get("logins"), dict):
            raise ConfigurationError(f"{self.path} is no file of logins; mend or remove it.")
        return content

    def _write(self, content: Mapping[str, Any]) -> None:
        """Whole or not at all, and never readable by others, not even for a moment."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
            file.write("\n")
        fresh.replace(self.path)
