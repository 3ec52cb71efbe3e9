"""The shell lines that a command is wrapped in on its way through execd, and how their own words are understood.

execd runs one line by `bash -c` or `sh -c`, has no input to give it, and loses line ends and bytes that are no text.
So the line puts the command's streams into files of a private directory and tells what is in them afterwards, in lines
that begin with a tag which no command can know. Nothing is assigned before the command runs: a variable of ours could
be one that the caller exported.
"""

from __future__ import annotations

import base64
import binascii
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from differently_core.errors import ExecUnconfirmed, InvalidRequest, ProviderUnavailable
from differently_core.model.exec import ExecRequest, Stream

from ..jobs import SHELL_OWNED

INLINE_BYTES: Final = 65_536
"""Of each stream, told in the same answer; more is downloaded."""
CHUNK_BYTES: Final = 98_304
ARGUMENT_BYTES_MAX: Final = 100_000
"""The kernel takes 128 KiB in one argument. Longer lines and commands go through a file."""
STREAMS: Final[tuple[Stream, ...]] = ("stdout", "stderr")
ABSENT_EXIT: Final = 126

# In subshells, and after the command: our tools must be found whatever the command's PATH is, unseen by it.
_TOOLS: Final = 'PATH="${PATH-}:/usr/local/bin:/usr/bin:/bin"'
_READY: Final = r"""
(TOOLS; umask 077; mkdir -p DIR && : > DIR/stdout && : > DIR/stderr) 2>/dev/null || { echo 'TAG unusable'; exit 0; }
"""
_FEED: Final = r"""
exec < DIR/stdin || { echo 'TAG unusable'; exit 0; }
(TOOLS; rm -f DIR/stdin)
"""
_ASTRAY: Final = r""" 2>/dev/null || { echo 'TAG cwd'; (TOOLS; rm -rf DIR); exit 0; }
"""
_SIZES: Final = r"""
code=$?
TOOLS
o=$(($(wc -c < DIR/stdout))) e=$(($(wc -c < DIR/stderr)))
"""
_TELL: Final = r"""
echo "TAG exit $code $o $e"
if [ "$o" -le INLINE ] && [ "$e" -le INLINE ] && command -v base64 >/dev/null 2>&1; then
  [ "$o" -eq 0 ] || echo "TAG stdout" $(head -c "$o" < DIR/stdout | base64)
  [ "$e" -eq 0 ] || echo "TAG stderr" $(head -c "$e" < DIR/stderr | base64)
  rm -rf DIR
fi
"""
# Runs beside the command and tells what is new. `ended` holds the sizes at the end: what a child in the background
# still writes after that does not belong to the command.
_FOLLOW: Final = r"""
( TOOLS
  command -v base64 >/dev/null 2>&1 || exit 0
  o=0 e=0 oz= ez= last=
  tell() {
    now=$(($(wc -c < DIR/"$1")))
    [ -z "$last" ] || now=$3
    n=$2
    [ "$now" -gt "$n" ] || return 0
    k=$((now - n))
    [ "$k" -le CHUNK ] || k=CHUNK
    echo "TAG $1" $(tail -c "+$((n + 1))" DIR/"$1" | head -c "$k" | base64)
    n=$((n + k)) moved=1
  }
  while :; do
    [ -e DIR/ended ] && read -r oz ez < DIR/ended && last=1
    moved=
    tell stdout "$o" "$oz"; o=$n
    tell stderr "$e" "$ez"; e=$n
    [ -z "$moved" ] || continue
    [ -z "$last" ] || break
    sleep 0.05 2>/dev/null || sleep 1
  done
) < /dev/null &
"""
_FOLLOWED: Final = r"""
echo "$o $e" > DIR/ended.new && mv DIR/ended.new DIR/ended
wait
echo "TAG exit $code $o $e"
command -v base64 >/dev/null 2>&1 && rm -rf DIR
exit 0
"""
_CLEAN: Final = r"""
code=$?
TOOLS
rm -rf DIR
exit "$code"
"""
PLACE_LINE: Final = 'echo "home $(pwd)"; echo "tmp ${TMPDIR:-/tmp}"'


@dataclass(frozen=True)
class Place:
    """Where commands of a sandbox start, and where it keeps temporary files."""

    home: str
    tmp: str

    def at(self, path: str) -> str:
        return path if path.startswith("/") else f"{self.home.rstrip('/')}/{path}"

    def staging(self, tag: str) -> str:
        """A directory that only we know of; `tag` is never used twice."""
        return f"{self.tmp.rstrip('/')}/.differently-{tag}"


def place_told(text: str) -> Place | None:
    """What `PLACE_LINE` printed, if it did."""
    told = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    home, tmp = told.get("home", ""), told.get("tmp", "")
    if not home.startswith("/"):
        return None
    return Place(home, tmp if tmp.startswith("/") else "/tmp")


@dataclass(frozen=True)
class Line:
    """What is sent: the line itself, and files that have to be in `directory` before it."""

    text: str = field(repr=False)
    tag: str
    directory: str
    files: Mapping[str, bytes] = field(repr=False)


def command_line(request: ExecRequest, place: Place, tag: str, *, exact: bool, follow: bool) -> Line:
    """`exact` keeps every byte; `follow` tells output while the command runs. Neither is told apart by the command."""
    directory = place.staging(tag)
    quoted = shlex.quote(directory)
    files: dict[str, bytes] = {}
    if request.stdin is not None:
        files["stdin"] = request.stdin.encode()
    words = _words(request, directory, files)

    def ours(script: str) -> str:
        script = script.replace("TOOLS", _TOOLS).replace("INLINE", str(INLINE_BYTES)).replace("CHUNK", str(CHUNK_BYTES))
        return script.replace("TAG", tag).replace("DIR", quoted)

    before = ours(_READY) if exact else ""
    if request.cwd is not None:
        before += f"cd -- {shlex.quote(place.at(request.cwd))}" + ours(_ASTRAY)
    if request.stdin is not None:
        before += ours(_FEED)
    if exact:
        run = f"( exec {words} ) >> {quoted}/stdout 2>> {quoted}/stderr"
        before += ours(_FOLLOW) if follow else ""
        after = ours(_SIZES) + ours(_FOLLOWED if follow else _TELL)
    else:
        run, after = (f"( exec {words} )", ours(_CLEAN)) if files else (f"exec {words}", "")
    text = before + run + after
    raw = text.encode(errors="surrogateescape")
    if len(raw) > ARGUMENT_BYTES_MAX:
        files["line"] = raw
        text = f". {shlex.quote(directory + '/line')}"
    return Line(text, tag, directory, files)


def _words(request: ExecRequest, directory: str, files: dict[str, bytes]) -> str:
    words = request.argv()
    if request.command is not None and len(request.command.encode()) > ARGUMENT_BYTES_MAX:
        files["command"] = request.command.encode()
        words = ["/bin/sh", f"{directory}/command"]
    owned = [f"{name}={value}" for name, value in request.env.items() if name in SHELL_OWNED]
    return " ".join(shlex.quote(word) for word in ([*("/usr/bin/env", *owned), *words] if owned else words))


@dataclass(frozen=True)
class Told:
    """The command ended with `code`, having written so many bytes."""

    code: int
    sizes: Mapping[Stream, int]


def understand(text: str, tag: str) -> Told | tuple[Stream, bytes] | None:
    """One line of ours; None for a line of anybody else's. Raises for a command that was not started."""
    head, *rest = text.split() or [""]
    if head != tag or not rest:
        return None
    match rest:
        case ["unusable"]:
            raise ProviderUnavailable("The sandbox has no place for temporary files; nothing was run.", settled=True)
        case ["cwd"]:
            raise InvalidRequest("cwd is not a directory in the sandbox.", field="cwd")
        case ["exit", code, stdout, stderr]:
            return Told(int(code), {"stdout": int(stdout), "stderr": int(stderr)})
        case ["stdout" | "stderr" as name, *encoded]:
            stream: Stream = "stdout" if name == "stdout" else "stderr"
            try:
                return stream, base64.b64decode("".join(encoded), validate=True)
            except (binascii.Error, ValueError):
                pass
            raise ExecUnconfirmed("The command's output arrived damaged.")
        case _:
            raise ExecUnconfirmed("The sandbox told something about the command that we do not understand.")


# Files by commands, for what execd's own file routes cannot do.

_STORE: Final = r"""
TOOLS
[ -d TARGET ] && { echo directory; exit; }
mkdir -p -- PARENT 2>/dev/null
[ -d PARENT ] || { echo parent; exit; }
mode=$(stat -c %a TARGET 2>/dev/null) || mode=644
chmod "$mode" SOURCE && mv -f -- SOURCE PART && mv -f -- PART TARGET && rm -rf STAGING || {
  rm -f PART; echo refused; exit
}
stat -c 'stored %s %a %Y' TARGET
"""
_LIST: Final = r"""
TOOLS
[ -e TARGET ] || [ -L TARGET ] || { echo missing; exit; }
[ -d TARGET ] || { echo file; exit; }
cd -- TARGET || { echo refused; exit; }
echo listed
for name in * .*; do
  case $name in . | ..) continue ;; esac
  [ -e "./$name" ] || [ -L "./$name" ] || continue
  printf '%s\000%s\000' "$(stat -c '%s %a %Y %F' "./$name")" "$name"
done
"""
_STAT: Final = r"""
TOOLS
[ -e TARGET ] || [ -L TARGET ] || { echo missing; exit; }
echo listed
printf '%s\000%s\000' "$(stat -c '%s %a %Y %F' TARGET)" NAME
"""
_ALIAS: Final = "mkdir -p STAGING && ln -s TARGET STAGING/alias"


def store(source: str, target: str, staging: str, tag: str) -> str:
    """Put an uploaded file in its place: whole or not at all, with the mode of the file that it replaces."""
    parent = target.rpartition("/")[0] or "/"
    part = f"{parent.rstrip('/')}/.differently-{tag}"
    return _with(_STORE, TARGET=target, PARENT=parent, SOURCE=source, PART=part, STAGING=staging)


def list_by_command(target: str) -> str:
    return _with(_LIST, TARGET=target)


def stat_by_command(target: str) -> str:
    return _with(_STAT, TARGET=target, NAME=target.rpartition("/")[2])


def alias(target: str, staging: str) -> str:
    return _with(_ALIAS, TARGET=target, STAGING=staging)


def _with(script: str, **values: str) -> str:
    """Placeholders are filled in one pass, so a value never meets the next one's placeholder."""
    parts = script.replace("TOOLS", _TOOLS)
    for name in values:
        parts = parts.replace(name, f"\0{name}\0")
    pieces = parts.split("\0")
    return "".join(shlex.quote(values[piece]) if index % 2 else piece for index, piece in enumerate(pieces))
