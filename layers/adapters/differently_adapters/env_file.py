"""A sandbox's environment where its backend takes none: a file of the sandbox's user, read before each command.

It lies on the disk and so in snapshots; a sandbox made from one gets its own in that place.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping
from typing import Final

_FILE: Final = '"$HOME/.differently/env"'
PREAMBLE: Final = f"[ -r {_FILE} ] && . {_FILE}\n"
"""Before a shell script, so that it has the environment."""
STORE: Final = f'umask 077; mkdir -p "$HOME/.differently" && cat > {_FILE}.$$ && mv -f {_FILE}.$$ {_FILE}'
"""A shell line that takes `text_of` on its input."""


def text_of(env: Mapping[str, str]) -> bytes:
    """Never empty, for an empty input may look like none."""
    return "".join(["\n", *(f"export {name}={shlex.quote(value)}\n" for name, value in env.items())]).encode()


STORED: Final = b"stored"


def line_of(env: Mapping[str, str]) -> str:
    """A shell line that stores it without an input, and prints `STORED` when it has."""
    text = shlex.quote(base64.b64encode(text_of(env)).decode())
    return f"printf %s {text} | base64 -d | ( {STORE} ) && echo {STORED.decode()}"
