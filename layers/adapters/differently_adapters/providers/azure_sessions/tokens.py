"""Access tokens of Microsoft Entra, each kept until shortly before its end."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from pydantic import JsonValue

from differently_core.errors import DifferentlyError, ProviderUnavailable
from differently_core.runtime.clock import Clock

from ...http import Call, Deadlines, Http, segment
from .config import AzureSessionsConfig
from .wire import TokenRead, read

SCOPE: Final = "https://dynamicsessions.io/.default"
SPARE_SECONDS: Final = 300.0
TOKEN_SECONDS: Final = 15.0


@dataclass(frozen=True)
class Token:
    value: str
    ends: float


class Tokens:
    """Safe to use from several threads; those that come together ask once."""

    def __init__(self, config: AzureSessionsConfig, secret: str, clock: Clock, untold: Collection[str]) -> None:
        self.http = Http(
            config.authority(), clock, secrets=[value for value in (secret, *untold) if value], rules=config.rules(),
            explain=_explain,
        )  # fmt: skip
        self._path = f"/{segment(config.tenant)}/oauth2/v2.0/token"
        self._clock = clock
        self._form = {
            "grant_type": "client_credentials", "client_id": config.client_id, "client_secret": secret, "scope": SCOPE,
        }  # fmt: skip
        self._lock = threading.Lock()
        self._token: Token | None = None

    def current(self) -> str:
        with self._lock:
            if self._token is None or self._clock.monotonic() >= self._token.ends:
                self._token = self._asked()
            return self._token.value

    def forget(self, value: str) -> None:
        """One that was rejected is not used again."""
        with self._lock:
            if self._token is not None and self._token.value == value:
                self._token = None

    def _asked(self) -> Token:
        call = Call(
            "POST", self._path, Deadlines(TOKEN_SECONDS), content=urlencode(self._form).encode(), mutates=False,
            headers={"content-type": "application/x-www-form-urlencoded"},
        )  # fmt: skip
        told = read(TokenRead, self.http.json(call))
        ends = self._clock.monotonic() + max(0.0, told.expires_in - SPARE_SECONDS)
        return Token(told.access_token, ends)


def _explain(call: Call, status: int, headers: Mapping[str, str], body: JsonValue) -> DifferentlyError | None:
    """Whatever is refused here, it is the pool that cannot be used. Of the words none are repeated."""
    if status < 500:
        return ProviderUnavailable(
            "Microsoft Entra gives no token for the pool's application.", settled=True, status=status
        )
    return None
