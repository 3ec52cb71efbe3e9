"""Commands in a session. Any call that names a session makes it, so one that ended meanwhile would come back empty.

So every script looks first for what a create leaves behind, and in a session without it nothing else runs. What was
made by that mistake is removed.
"""

from __future__ import annotations

import base64
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from differently_core.errors import ExecUnconfirmed, NotFound, ProviderUnavailable, SandboxFailed

from ... import env_file
from ...parts import in_parts
from .api import Api

PART_BYTES: Final = 90_000
"""Of a file in one command's text: in base64 below the 128 KiB that the kernel takes in one argument."""
SMALL_SECONDS: Final = 60
_FRESH: Final = "differently-fresh"
_GUARD: Final = f'[ -r "$HOME/.differently/env" ] || {{ echo {_FRESH}; exit 0; }}\n'


class SessionShell:
    """A `Shell`, and files under absolute paths. Every command has the environment that the sandbox was made with."""

    def __init__(self, api: Api, name: str) -> None:
        self._api = api
        self._name = name

    @contextmanager
    def open(self, script: str, seconds: float) -> Iterator[Iterator[bytes]]:
        yield iter([self._guarded(env_file.PREAMBLE + script, math.ceil(seconds)).encode()])

    def put(self, path: str, data: bytes) -> None:
        self.upload(path, [data])

    def upload(self, path: str, data: Iterable[bytes]) -> None:
        """In parts, each in a command's own text: a command has no input here."""
        quoted = shlex.quote(path)
        into = ">"
        for part in in_parts(data, PART_BYTES):
            text = shlex.quote(base64.b64encode(part).decode())
            script = f"umask 077; printf %s {text} | base64 -d {into} {quoted} && echo stored"
            if self._guarded(script, SMALL_SECONDS).strip() != "stored":
                raise ProviderUnavailable("The sandbox did not store a part of the file; the old one is untouched.")
            into = ">>"

    def touch(self) -> None:
        """Be a use of the session, which moves its end."""
        self._guarded("echo used", SMALL_SECONDS)

    def begin(self, env: Mapping[str, str]) -> None:
        """Make the session if it is not there, and give it its environment if it has none yet."""
        script = f'[ -r "$HOME/.differently/env" ] && echo stored || {{ {env_file.line_of(env)}; }}'
        try:
            told = self._api.execute(self._name, script, SMALL_SECONDS)
        except ExecUnconfirmed as error:
            raise ProviderUnavailable(f"It is not known if a session was made. {error.message}") from None
        if told.strip() != "stored":
            raise SandboxFailed("The session does not run commands.")

    def _guarded(self, script: str, seconds: int) -> str:
        told = self._api.execute(self._name, _GUARD + script, seconds)
        if told.strip() == _FRESH:
            self._api.delete(self._name)
            raise NotFound("The session had ended; what took its place was removed.")
        return told
