"""A running machine: short commands with an input of text, which is all there is. Files go through that input."""

from __future__ import annotations

import base64
import math
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from differently_core.errors import ProviderUnavailable

from ...parts import in_parts
from .api import Api

CALL_SECONDS_MAX: Final = 55
"""Fly takes no longer timeout of one call well; whatever may take longer is a job."""
PART_BYTES: Final = 589_824
"""Of a file, in one call."""
PART_SECONDS: Final = 50


class Machine:
    """A `Shell`, and files under absolute paths."""

    def __init__(self, api: Api, ref: str) -> None:
        self._api = api
        self._ref = ref

    @contextmanager
    def open(self, script: str, seconds: float) -> Iterator[Iterator[bytes]]:
        limit = min(CALL_SECONDS_MAX, math.ceil(seconds))
        told = self._api.exec(self._ref, ["/bin/sh", "-c", script], "", limit)
        yield iter([told.encode()])

    def put(self, path: str, data: bytes) -> None:
        self.upload(path, [data])

    def upload(self, path: str, data: Iterable[bytes]) -> None:
        """Each part is put behind what is there already, which must be as long as we think."""
        quoted = shlex.quote(path)
        sent = 0
        for part in in_parts(data, PART_BYTES):
            script = f'umask 077; [ "$(($(wc -c < {quoted})))" -eq {sent} ] && base64 -d >> {quoted} && echo stored'
            if not sent:
                script = f"umask 077; base64 -d > {quoted} && echo stored"
            text = base64.b64encode(part).decode()
            told = self._api.exec(self._ref, ["/bin/sh", "-c", script], text, PART_SECONDS)
            if told.strip() != "stored":
                raise ProviderUnavailable("The sandbox did not store a part of the file; the old one is untouched.")
            sent += len(part)
