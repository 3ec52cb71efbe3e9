"""Whatever bytes a caller sends are one word of the shell, and arrive as they are."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Sequence

import pytest

from differently_adapters.env_file import text_of
from differently_adapters.execd.scripts import Place, _with, command_line
from differently_adapters.jobs import run_script
from differently_adapters.shell_files import ShellFiles
from differently_core.contract import CommandResult
from differently_core.model.exec import ExecRequest
from differently_core.runtime.clock import SystemClock
from tests.support.local_shell import PATH, SHELLS

STRINGS = 10_000
LENGTH_MAX = 24
LOVED = b"'\"\\$`!*?[]{}()<>|&;#~=%^ \t\n\r-\x1b\x7f\x80\xff"
"""Bytes that mean something to a shell, to a terminal or to a decoder."""
WHOLE = ("", "-n", "--", "'", "''", "\\'", "$(id)", "`id`", "a\nb", "\n", "~", "TARGET", "VALUE", "$VALUE", "!!", "%s")


def strings() -> list[bytes]:
    """No NUL among them: that no word of a process can hold, and each of our routes refuses it."""
    chance = random.Random(7)
    made = [text.encode() for text in WHOLE]
    while len(made) < STRINGS:
        length = chance.randrange(LENGTH_MAX)
        made.append(
            bytes(chance.choice(LOVED) if chance.random() < 0.6 else chance.randrange(1, 256) for _ in range(length))
        )
    return made


def by_shell_files(texts: Sequence[str]) -> str:
    """What `ShellFiles` sends for a script with a value in it."""
    sent: list[str] = []

    def hear(request: ExecRequest, bytes_max: int) -> CommandResult:
        assert request.command is not None
        sent.append(request.command)
        return CommandResult(0, b"", b"", 0)

    files = ShellFiles(hear, SystemClock())
    for text in texts:
        files._say("printf '%s\\000' VALUE\n", VALUE=text)
    return "".join(sent)


def by_execd_files(texts: Sequence[str]) -> str:
    return "".join(_with("printf '%s\\000' VALUE\n", VALUE=text) for text in texts)


def by_execd_commands(texts: Sequence[str]) -> str:
    place = Place("/", "/tmp")
    lines = (
        command_line(ExecRequest(args=["printf", "%s\\000", text]), place, "t", exact=False, follow=False).text
        for text in texts
    )
    return "".join(f"({line})\n" for line in lines)


def by_jobs(texts: Sequence[str]) -> str:
    """Each in the environment and in the input of a command, as a job's script has them."""
    scripts = (run_script(ExecRequest(args=["true"], env={"VALUE": text})) for text in texts)
    exports = (script[script.index("export VALUE=") : script.rindex("exec true")] for script in scripts)
    return "".join(f"{export}printf '%s\\000' \"$VALUE\"\n" for export in exports)


def by_env_file(texts: Sequence[str]) -> str:
    return "".join(f"{text_of({'VALUE': text}).decode()}printf '%s\\000' \"$VALUE\"\n" for text in texts)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("quoted", "share"),
    [(by_shell_files, 1), (by_execd_files, 1), (by_execd_commands, 50), (by_jobs, 1), (by_env_file, 1)],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_ten_thousand_random_strings_come_back_as_they_went(
    quoted: Callable[[Sequence[str]], str], share: int, shell: str
) -> None:
    """One shell reads them all; `share` thins them out where each starts a process of its own."""
    texts = [raw.decode("latin-1") for raw in strings()[::share]]
    sent = quoted(texts).encode()
    ran = subprocess.run([*SHELLS[shell], "-s"], input=sent, capture_output=True, check=True, env={"PATH": PATH})
    assert ran.stderr == b""
    assert ran.stdout.split(b"\0")[:-1] == [text.encode() for text in texts]


def test_bytes_that_are_no_text_come_back_as_well() -> None:
    """Names that a sandbox gave its files need not be UTF-8; what speaks to execd passes them on as they are."""
    raws = strings()
    script = by_execd_files([raw.decode(errors="surrogateescape") for raw in raws]).encode(errors="surrogateescape")
    ran = subprocess.run(["/bin/sh", "-s"], input=script, capture_output=True, check=True)
    assert ran.stdout.split(b"\0")[:-1] == raws
