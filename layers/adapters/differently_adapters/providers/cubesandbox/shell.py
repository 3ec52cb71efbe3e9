"""Commands and files in one sandbox: envd, and an environment that CubeSandbox does not apply by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from differently_core.errors import ProviderUnavailable

from ... import env_file
from ...envd import Envd

SMALL_SECONDS: Final = 30.0


class CubeShell:
    """A `Shell`, and files under absolute paths. Every command has the environment that the sandbox was made with."""

    def __init__(self, agent: Envd) -> None:
        self._agent = agent

    @contextmanager
    def open(self, script: str, seconds: float) -> Iterator[Iterator[bytes]]:
        with self._agent.open(env_file.PREAMBLE + script, seconds) as chunks:
            yield chunks

    def put(self, path: str, data: bytes) -> None:
        self._agent.put(path, data)

    def upload(self, path: str, data: Iterable[bytes]) -> None:
        self._agent.upload(path, data)

    def download(self, path: str) -> Iterator[bytes]:
        return self._agent.download(path)

    def store_env(self, env: Mapping[str, str]) -> None:
        """In place of one that came with a snapshot."""
        with self._agent.open(env_file.line_of(env), SMALL_SECONDS) as told:
            if b"".join(told).strip() != env_file.STORED:
                raise ProviderUnavailable("The sandbox's environment could not be stored.", settled=True)
