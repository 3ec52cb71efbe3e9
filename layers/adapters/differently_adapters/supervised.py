"""Commands on a backend that runs a shell line and hands over what it printed: everything else made exact.

Backends lose bytes that are no text, mix streams, kill one process of many at a timeout, and wait for children in the
background. So what is sent is a POSIX shell script that supervises the command in the sandbox: in a session of its
own, with a time limit that ends the whole group (SIGTERM, then SIGKILL), its streams in files of a private directory.
The script tells what became of it in lines that begin with a tag; streams travel between them as base64. A reader who
goes away stops neither the command nor its time limit.

    TAG begun                     the command has been handed over
    TAG stdout base64             a part of a stream; the lines up to the next tag are its text
    TAG .                         the end of a part; alone, a sign of life
    TAG exit 3 120 0 -            all is over: code, bytes of both streams, and `late` if its time was up
    TAG cwd, TAG unusable         nothing was started

The sandbox needs `sh`, `cat`, `mkdir`, `rm`, `head`, `tail`, `wc`, `sleep`, and `base64` or `od`; with `setsid` a
command's children are ended with it, without only its first process is.
"""

from __future__ import annotations

import base64
import binascii
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from differently_core.contract import CommandResult, ExecEvent, Exit, Output, Quiet
from differently_core.errors import ExecUnconfirmed, InvalidRequest, ProviderUnavailable
from differently_core.model.exec import EXIT_TIMEOUT, ExecRequest, Stream
from differently_core.runtime.clock import Clock
from differently_core.runtime.ids import SystemIds

from .http import lines
from .jobs import run_script

SCRIPT_BYTES_MAX: Final = 100_000
"""The kernel takes 128 KiB in one argument; a longer script goes through a file."""
PART_BYTES: Final = 196_608
"""Of a stream, told at once while the command runs."""
STOP_SECONDS: Final = 2
"""Between SIGTERM and SIGKILL."""
SPARE_SECONDS: Final = 30.0
"""How much longer than the command a call may take before its end counts as unseen."""
BEAT_SECONDS: Final = 10.0
"""Between signs of life of a command that is waited for; what stands between closes silent connections."""
_STEP_SECONDS: Final = 0.05
_STREAMS: Final[tuple[Stream, ...]] = ("stdout", "stderr")


class Shell(Protocol):
    """What a backend has to be able to do."""

    def open(self, script: str, seconds: float) -> AbstractContextManager[Iterator[bytes]]:
        """Run `/bin/sh -c script` with closed input. Gives its standard output, which ends when the script has ended.

        Raises `ExecUnconfirmed` when it may have been started and its end is not seen.
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Store a file under an absolute path whose directory exists."""
        ...


# Names are long because an exported variable of the same name would change under the command.
_READY: Final = r"""
exec 2>/dev/null
dfy_path=${PATH-} dfy_mask=$(umask)
PATH="$dfy_path:/usr/local/bin:/usr/bin:/bin"
umask 077
dfy_dir=${TMPDIR:-/tmp}/.differently-TAG
[ -d "${TMPDIR:-/tmp}" ] || mkdir -p "${TMPDIR:-/tmp}"
mkdir "$dfy_dir" && : > "$dfy_dir/stdout" && : > "$dfy_dir/stderr"
cat > "$dfy_dir/run" <<'TAG-END'
COMMAND
TAG-END
[ -s "$dfy_dir/run" ] && [ "$(($(wc -c < "$dfy_dir/run")))" -eq LENGTH ] || {
  echo 'TAG unusable'; rm -rf "$dfy_dir"; exit 0
}
"""
_LOOK: Final = r"""
(cd -- CWD) || { echo 'TAG cwd'; rm -rf "$dfy_dir"; exit 0; }
"""
# The watch ends the command in time even where this script was ended; the directory tells it that all is over.
_GUARD: Final = r"""
dfy_own=
command -v setsid > /dev/null && dfy_own=setsid
$dfy_own /bin/sh -c '
  sleep "$1" || exit
  [ -d "$2" ] && ! [ -e "$2/ended" ] && read -r pid < "$2/pid" || exit
  : > "$2/late"
  kill -s TERM -- "-$pid" || kill -s TERM "$pid"
  sleep STOP
  kill -s KILL -- "-$pid" || kill -s KILL "$pid"
' - LIMIT "$dfy_dir" < /dev/null > /dev/null 2>&1 &
dfy_watch=$!
dfy_text() {
  if command -v base64 > /dev/null; then echo "TAG $1 base64"; base64
  else echo "TAG $1 hex"; od -An -v -tx1; fi
  echo 'TAG .'
}
echo 'TAG begun'
"""
_BEAT: Final = r"""
( trap '' PIPE; while sleep BEAT > /dev/null; do echo 'TAG .'; done ) < /dev/null &
dfy_beat=$!
"""
_FOLLOW: Final = r"""
(
  trap '' PIPE
  dfy_more() {  # stream, bytes told so far, bytes that there are; sets dfy_at
    dfy_at=$2
    [ "$3" -gt "$2" ] || return 0
    dfy_part=$(($3 - $2))
    [ "$dfy_part" -le PART ] || dfy_part=PART
    tail -c "+$(($2 + 1))" "$dfy_dir/$1" | head -c "$dfy_part" | dfy_text "$1"
    dfy_at=$(($2 + dfy_part)) dfy_still=0
  }
  dfy_o=0 dfy_e=0 dfy_still=0
  while :; do
    dfy_last=
    if [ -e "$dfy_dir/ended" ]; then read -r dfy_oz dfy_ez < "$dfy_dir/ended"; dfy_last=1
    else dfy_oz=$(($(wc -c < "$dfy_dir/stdout"))) dfy_ez=$(($(wc -c < "$dfy_dir/stderr"))); fi
    dfy_more stdout "$dfy_o" "$dfy_oz"; dfy_o=$dfy_at
    dfy_more stderr "$dfy_e" "$dfy_ez"; dfy_e=$dfy_at
    [ "$dfy_o" -lt "$dfy_oz" ] || [ "$dfy_e" -lt "$dfy_ez" ] && continue
    [ -z "$dfy_last" ] || break
    sleep STEP || { sleep 1; dfy_still=$((dfy_still + SLOWER)); }
    dfy_still=$((dfy_still + 1))
    [ "$dfy_still" -lt STEPS ] || { echo 'TAG .'; dfy_still=0; }
  done
) < /dev/null &
dfy_beat=$!
"""
# Not by "&": what a shell starts so ignores SIGINT for ever.
_RUN: Final = r"""
$dfy_own /bin/sh "$dfy_dir/run" "$dfy_dir" "$dfy_mask" "$dfy_path" \
  < /dev/null > "$dfy_dir/stdout" 2> "$dfy_dir/stderr"
dfy_code=$?
trap '' PIPE
dfy_late=-
if [ -e "$dfy_dir/late" ] && read -r dfy_pid < "$dfy_dir/pid"; then
  dfy_late=late
  kill -s KILL -- "-$dfy_pid"
fi
dfy_o=0 dfy_e=0
[ ! -s "$dfy_dir/stdout" ] || dfy_o=$(($(wc -c < "$dfy_dir/stdout")))
[ ! -s "$dfy_dir/stderr" ] || dfy_e=$(($(wc -c < "$dfy_dir/stderr")))
"""
_MARK: Final = ': > "$dfy_dir/ended"\n'
_MARK_SIZES: Final = 'echo "$dfy_o $dfy_e" > "$dfy_dir/ended.new" && mv "$dfy_dir/ended.new" "$dfy_dir/ended"\n'
_UNWATCH: Final = 'kill -s KILL -- "-$dfy_watch" || kill -s KILL "$dfy_watch"\n'
_TELL: Final = r"""
kill -s KILL "$dfy_beat"
wait "$dfy_beat"
dfy_tell() {
  if [ "$2" -le KEEP ]; then head -c "$2" < "$dfy_dir/$1"
  else head -c HEAD < "$dfy_dir/$1"; head -c "$2" < "$dfy_dir/$1" | tail -c TAIL; fi | dfy_text "$1"
}
[ "$dfy_o" -eq 0 ] || dfy_tell stdout "$dfy_o"
[ "$dfy_e" -eq 0 ] || dfy_tell stderr "$dfy_e"
"""
_TOLD: Final = 'wait "$dfy_beat"\n'
_LEAVE: Final = r"""
rm -rf "$dfy_dir"
echo "TAG exit $dfy_code $dfy_o $dfy_e $dfy_late"
exit 0
"""
_PLACEHOLDER: Final = re.compile(r"\b(TAG|LENGTH|CWD|COMMAND|LIMIT|STOP|BEAT|PART|STEPS?|SLOWER|KEEP|HEAD|TAIL)\b")


@dataclass(frozen=True)
class Begun:
    pass


@dataclass(frozen=True)
class Ended:
    """`bytes` that the command wrote to each stream until it ended."""

    code: int
    bytes: Mapping[Stream, int]
    timed_out: bool

    @property
    def shown(self) -> int:
        return EXIT_TIMEOUT if self.timed_out else self.code


Told = Begun | Output | Quiet | Ended


class Supervised:
    """The operations `exec` and `exec_stream` of one sandbox."""

    def __init__(self, shell: Shell, clock: Clock) -> None:
        self._shell = shell
        self._clock = clock
        self._ids = SystemIds(clock)

    def exec(self, request: ExecRequest, output_bytes_max: int) -> CommandResult:
        """`ExecUnconfirmed` when the end was not seen, or not all of what was written is there."""
        began = self._clock.monotonic()
        written: dict[Stream, bytes] = {"stdout": b"", "stderr": b""}
        for told in self._told(request, keeping=output_bytes_max):
            match told:
                case Output(stream, data):
                    written[stream] += data
                case Ended():
                    kept = {stream: min(told.bytes[stream], output_bytes_max) for stream in _STREAMS}
                    _check_whole({stream: len(data) for stream, data in written.items()}, kept)
                    return CommandResult(
                        told.shown, written["stdout"], written["stderr"], self._since(began),
                        told.bytes["stdout"] - kept["stdout"], told.bytes["stderr"] - kept["stderr"], told.timed_out,
                    )  # fmt: skip
        raise ExecUnconfirmed("The command's end was not seen.")

    def stream(self, request: ExecRequest, quiet_seconds: float) -> Iterator[ExecEvent]:
        began = self._clock.monotonic()
        sizes: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        for told in self._told(request, quiet=quiet_seconds):
            match told:
                case Output(stream, data):
                    sizes[stream] += len(data)
                    yield told
                case Quiet():
                    yield told
                case Ended():
                    # More may have come: what a child in the background wrote while the command ended.
                    _check_whole({stream: min(sizes[stream], told.bytes[stream]) for stream in _STREAMS}, told.bytes)
                    yield Exit(told.shown, self._since(began), told.timed_out)
                    return
        raise ExecUnconfirmed("The command's end was not seen.")

    def _told(self, request: ExecRequest, *, keeping: int = 0, quiet: float | None = None) -> Iterator[Told]:
        tag = self._ids.new("d")
        script = script_of(request, tag, keeping=keeping, quiet=quiet)
        if len(script.encode()) > SCRIPT_BYTES_MAX:
            script = self._by_file(script, tag)
        with self._shell.open(script, request.timeout_seconds + STOP_SECONDS + SPARE_SECONDS) as chunks:
            yield from understood(chunks, tag)

    def _by_file(self, script: str, tag: str) -> str:
        with self._shell.open('echo "${TMPDIR:-/tmp}"', SPARE_SECONDS) as chunks:
            place = b"".join(chunks).decode(errors="replace").splitlines()
        if not place or not place[0].startswith("/"):
            raise ProviderUnavailable("The sandbox did not tell where it keeps temporary files.", settled=True)
        path = f"{place[0].rstrip('/')}/.differently-{tag}.sh"
        quoted = shlex.quote(path)
        self._shell.put(path, f"rm -f {quoted}\n{script}".encode())
        return f". {quoted}"

    def _since(self, began: float) -> int:
        return int((self._clock.monotonic() - began) * 1000)


def script_of(request: ExecRequest, tag: str, *, keeping: int = 0, quiet: float | None = None) -> str:
    """The script for one command: followed where `quiet` says how often it is heard of, else told in the end, of each
    stream the first and last half of `keeping`."""
    command = f'echo $$ > "$1/pid"\n{run_script(request)}'
    head = (keeping + 1) // 2
    steps = max(1, int((quiet or 0.0) / _STEP_SECONDS / 2))
    values = {
        "TAG": tag, "COMMAND": command.removesuffix("\n"), "LENGTH": str(len(command.encode())),
        "CWD": shlex.quote(request.cwd or "."), "LIMIT": str(request.timeout_seconds), "STOP": str(STOP_SECONDS),
        "BEAT": str(int(BEAT_SECONDS)), "PART": str(PART_BYTES), "STEP": str(_STEP_SECONDS), "STEPS": str(steps),
        "SLOWER": str(int(1 / _STEP_SECONDS) - 1), "KEEP": str(keeping), "HEAD": str(head),
        "TAIL": str(keeping - head),
    }  # fmt: skip
    parts = [_READY, _LOOK if request.cwd is not None else "", _GUARD]
    if quiet is None:
        parts += [_BEAT, _RUN, _MARK, _UNWATCH, _TELL, _LEAVE]
    else:
        parts += [_FOLLOW, _RUN, _MARK_SIZES, _UNWATCH, _TOLD, _LEAVE]
    # In one pass, so that no value is ever searched for the next placeholder.
    return _PLACEHOLDER.sub(lambda match: values[match[0]], "".join(parts))


def understood(chunks: Iterable[bytes], tag: str) -> Iterator[Told]:
    """What the script tells. Lines of anybody else's are nobody's business outside a stream's part."""
    mark = tag.encode()
    stream: Stream | None = None
    encoding = ""
    text: list[bytes] = []
    for line in lines(chunks):
        word, _, rest = line.partition(b" ")
        if word != mark:
            if stream is not None:
                text.append(line)
            continue
        if stream is not None:
            yield Output(stream, _decoded(text, encoding))
            stream, text = None, []
            if rest == b".":
                continue
        match rest.decode("ascii", "replace").split():
            case ["begun"]:
                yield Begun()
            case ["."]:
                yield Quiet()
            case ["stdout" | "stderr" as name, how]:
                stream, encoding = ("stdout" if name == "stdout" else "stderr"), how
            case ["exit", code, out, err, late] if (code + out + err).isdigit():
                yield Ended(int(code), {"stdout": int(out), "stderr": int(err)}, late == "late")
                return
            case ["cwd"]:
                raise InvalidRequest("cwd is not a directory in the sandbox.", field="cwd")
            case ["unusable"]:
                raise ProviderUnavailable("The sandbox has no room for temporary files; nothing was run.", settled=True)
            case _:
                raise ExecUnconfirmed("The sandbox told something about the command that we do not understand.")


def _check_whole(arrived: Mapping[Stream, int], written: Mapping[Stream, int]) -> None:
    if dict(arrived) != dict(written):
        raise ExecUnconfirmed("The command has ended, and not all of its output arrived.")


def _decoded(text: list[bytes], encoding: str) -> bytes:
    whole = b"".join(text)
    try:
        if encoding == "base64":
            return base64.b64decode(whole.strip(), validate=True)
        return bytes.fromhex(whole.decode("ascii"))
    except (binascii.Error, ValueError):
        pass
    raise ExecUnconfirmed("The command's output arrived damaged.")
