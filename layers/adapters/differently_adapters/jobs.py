"""Background jobs on any backend that can run a command and wait: a small POSIX shell launcher, started by `exec`.

A job is a directory in the sandbox. Making it is the claim, so two starts under one id make one job:

    digest              of the whole request: tells a repeated start from another command under the same id
    run                 the command with its environment and input, private, gone once the job has ended
    stdout  stderr      what it wrote, read by byte offset
    child  supervisor   process ids with their start times: a number given out again is not taken for ours
    timed_out  stopped  that it is being ended, written before it is
    exit                how it ended and its exit code, put there by a rename when all is over

The supervisor lives in a session of its own. It holds the timeout and records the end by itself, whatever becomes of
the control plane. Everything a caller wrote travels on the launcher's input: nothing of it is in a process list or
has to survive quoting twice. The sandbox needs `sh`, `cat`, `mkdir`, `mv`, `rm`, `tail`, `head`, `wc`, `date`, `sleep`
and `base64` or `od`; with `setsid` a job's children are ended with it, without only its first process is.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from differently_core.contract import CommandResult, JobOutput, Target
from differently_core.errors import InvalidRequest, InvalidState, NotFound, ProviderUnavailable
from differently_core.model.exec import (
    EXIT_TIMEOUT,
    JOB_ID_PATTERN,
    ExecRequest,
    Job,
    JobState,
    Stream,
)

ExecCall = Callable[[Target, ExecRequest, int], CommandResult]

DIRECTORY: Final = "/tmp/.differently-jobs"
IN_TMPDIR: Final = "$TMPDIR/.differently-jobs"
"""Where the sandbox itself keeps temporary files; `/tmp` where it does not say."""
READ_BYTES_MAX: Final = 524_288
"""Of a job's output in one read; as base64 it still fits a backend that returns one MiB."""
PART_BYTES: Final = 786_432
"""Of a request in one exec's input. Longer ones are sent in parts."""
ANSWER_BYTES_MAX: Final = 1_048_576
FOLLOWED_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of an answer with both streams in it, as text."""
CALL_SECONDS: Final = 60
WATCH_SECONDS: Final = 10
"""How often a job's watch looks whether there still is a job; a job of this length or less is never looked at."""
STOP_SECONDS: Final = 2
"""Between SIGTERM and SIGKILL."""
SHELL_OWNED: Final = frozenset(
    {
        "OPTIND",
        "UID",
        "EUID",
        "PPID",
        "GROUPS",
        "BASHOPTS",
        "SHELLOPTS",
        "BASH_VERSINFO",
        "LINENO",
        "PWD",
        "OLDPWD",
        "_",
    }
)
"""Names that some shells refuse to assign, or assign themselves: given by env(1), since none of them is a secret."""

# Functions that every script of ours starts with. $d is the job's directory.
_COMMON: Final = r"""
keep=${PATH-}  # the command's own; ours must find the tools even where a sandbox set another
PATH="$keep:/usr/local/bin:/usr/bin:/bin"
case $d in
  '$TMPDIR'/*) d=${TMPDIR:-/tmp}/${d#*/} parts=${parts:+${TMPDIR:-/tmp}/${parts#*/}} ;;
  /*) ;;
  *) d=$PWD/$d parts=$PWD/${parts-} ;;
esac
nap() { sleep 0.1 2>/dev/null || sleep 1; }
began() {  # the kernel's start time of process $1; nothing when it is gone or a zombie
  [ -r "/proc/$1/stat" ] || return 0
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  set -- ${stat##*) }
  [ "$1" = Z ] || echo "${20}"
}
record() { echo "$2 $(began "$2")" > "$d/$1.$$" && mv "$d/$1.$$" "$d/$1"; }
lives() {  # the process recorded as $1 is there, and is the same one
  [ -s "$d/$1" ] && read -r pid since < "$d/$1" || return 1
  if [ -d /proc/self ]; then [ -n "$since" ] && [ "$(began "$pid")" = "$since" ]
  else kill -0 "$pid" 2>/dev/null; fi
}
send() {  # signal $1 to the command's group, or to its process where it has no group of its own
  read -r pid since < "$d/child" || return 0
  if [ -e "$d/group" ]; then kill -s "$1" -- "-$pid"; else kill -s "$1" "$pid"; fi 2>/dev/null
}
size() { if [ -e "$1" ]; then echo $(( $(wc -c < "$1") )); else echo 0; fi; }
status() {
  ending='running -'
  if ! [ -e "$d/exit" ] && ! lives supervisor && ! lives child; then
    ending='lost -'
    [ -e "$d/stopped" ] && ending='stopped -'
    [ -e "$d/timed_out" ] && ending='timed_out -'
  fi
  [ -e "$d/exit" ] && read -r ending < "$d/exit"  # looked for last: it may have come meanwhile
  at=-
  [ -s "$d/started" ] && read -r at < "$d/started"
  echo "job $ending $at $(size "$d/stdout") $(size "$d/stderr")"
}
own=
command -v setsid >/dev/null 2>&1 && own=setsid
"""

# $1 is the job's directory, $2 the time limit, $3 and $4 the umask and the PATH that the command is to have. With $5 it
# is the watch, which ends the command in time even where the supervisor itself was killed; so it is started first.
# A line on its output tells the launcher that all this is so.
_SUPERVISOR: Final = (
    "d=$1"
    + _COMMON
    + rf"""
if [ "$5" = watch ]; then
  left=$2
  while [ "$left" -gt {WATCH_SECONDS} ]; do
    sleep {WATCH_SECONDS} || exit  # killed, with all the rest of the sandbox: the time is not up
    left=$((left - {WATCH_SECONDS}))
    lives supervisor || lives child || exit  # nobody is left to be ended
  done
  sleep "$left" || exit
  [ -e "$d/exit" ] || ! lives child && exit
  : > "$d/timed_out"
  send TERM
  sleep {STOP_SECONDS}
  [ -e "$d/exit" ] || ! lives child || send KILL
  exit
fi
[ -n "$own" ] && : > "$d/group" || trap '' HUP
$own /bin/sh "$d/supervise" "$d" "$2" - "$4" watch < /dev/null > /dev/null 2>&1 &
watch=$!
record supervisor $$
echo recorded
exec > /dev/null
$own /bin/sh "$d/begin" "$d" "$3" "$4" < /dev/null > "$d/stdout" 2> "$d/stderr"
ending="exited $?"
[ -e "$d/stopped" ] && ending="stopped ${{ending#* }}"
[ -e "$d/timed_out" ] && ending="timed_out {EXIT_TIMEOUT}"
[ "${{ending%% *}}" = exited ] || send KILL
kill -s KILL -- "-$watch" 2>/dev/null || kill -s KILL $watch 2>/dev/null
rm -f "$d/run" "$d/input"
echo "$ending" > "$d/exit.new" && mv "$d/exit.new" "$d/exit"
"""
)

# The command's process records itself and becomes the command.
_BEGIN: Final = (
    "d=$1"
    + _COMMON
    + r"""
record child $$
exec /bin/sh "$d/run" "$d" "$2" "$3"
"""
)

_SEND_AHEAD: Final = r"""
parts={parts}
case $parts in '$TMPDIR'/*) parts=${{TMPDIR:-/tmp}}/${{parts#*/}} ;; esac
umask 077; mkdir -p "$parts" && cat > "$parts/{number:06d}"
"""
# $parts holds what was sent ahead, $length is the length of the whole script, $limit the time limit.
_LAUNCHER: Final = (
    _COMMON
    + rf"""
mask=$(umask)
umask 077
read -r digest
if mkdir -p "${{d%/*}}" && mkdir "$d" 2>/dev/null; then
  {{ [ -d "$parts" ] && cat "$parts"/*; cat; }} > "$d/run"
  rm -rf "$parts"
  if [ "$(size "$d/run")" -ne "$length" ]; then rm -rf "$d"; echo damaged; exit; fi
  cat > "$d/supervise" <<'END-OF-SUPERVISOR'
{_SUPERVISOR}
END-OF-SUPERVISOR
  cat > "$d/begin" <<'END-OF-BEGIN'
{_BEGIN}
END-OF-BEGIN
  date +%s > "$d/started"
  echo "$digest" > "$d/digest.new" && mv "$d/digest.new" "$d/digest"
  # What a shell starts with "&" ignores SIGINT for ever, and the command is to hear it. So the supervisor is a part of
  # a pipeline, and the shell that would wait for it is ended by the other part once the supervisor is recorded.
  {{
    /bin/sh -c '"$@" | {{ read -r recorded; kill -s KILL $$; }}' - \
      $own /bin/sh "$d/supervise" "$d" "$limit" "$mask" "$keep" < /dev/null
  }} > /dev/null 2>&1
elif [ -d "$d" ]; then
  cat > /dev/null
  rm -rf "$parts"
  for _ in 1 2 3 4 5 6 7 8 9 10; do [ -e "$d/digest" ] && break; nap; done  # the first start is still at it
  [ -e "$d/digest" ] && [ "$(cat "$d/digest")" != "$digest" ] && {{ echo other; exit; }}
else
  echo unusable; exit
fi
status
"""
)

_STOP: Final = (
    _COMMON
    + rf"""
[ -d "$d" ] || {{ echo missing; exit; }}
waited() {{  # up to $1 tenths of a second for the end
  n=0
  while [ $n -lt "$1" ] && ! [ -e "$d/exit" ] && {{ lives supervisor || lives child; }}; do nap; n=$((n + 1)); done
}}
if ! [ -e "$d/exit" ]; then
  : > "$d/stopped"
  n=0
  while [ $n -lt 50 ] && ! [ -e "$d/child" ] && lives supervisor; do nap; n=$((n + 1)); done
  if [ -e "$d/child" ] && ! [ -e "$d/exit" ]; then
    {{ lives supervisor || lives child; }} && send TERM
    waited {STOP_SECONDS * 10}
    {{ lives supervisor || lives child; }} && send KILL
    waited 50
  fi
fi
status
"""
)

_INTERRUPT: Final = (
    _COMMON
    + r"""
[ -d "$d" ] || { echo missing; exit; }
n=0
while [ $n -lt 50 ] && ! [ -e "$d/child" ] && ! [ -e "$d/exit" ] && lives supervisor; do nap; n=$((n + 1)); done
[ -e "$d/child" ] && ! [ -e "$d/exit" ] && lives child && send INT
status
"""
)

_STATUS: Final = (
    _COMMON
    + r"""
[ -d "$d" ] || { echo missing; exit; }
status
"""
)

# $stream, $offset (from 1) and $limit say what to read. Text survives every backend, so bytes travel as text.
_OUTPUT: Final = (
    _STATUS
    + r"""
[ -e "$d/$stream" ] || exit 0
if command -v base64 >/dev/null 2>&1; then
  echo base64; tail -c "+$offset" "$d/$stream" | head -c "$limit" | base64
else
  echo hex; tail -c "+$offset" "$d/$stream" | head -c "$limit" | od -An -v -tx1
fi
"""
)

# $until says what is waited for, at most $tenths: `more` than $o and $e bytes, of which $limit of each stream are told;
# or the `end`, and then of each stream the first $head and last $tail bytes if it has more than both, and the job goes.
_FOLLOW: Final = (
    _COMMON
    + r"""
[ -d "$d" ] || { echo missing; exit; }
n=0
while [ $n -lt "$tenths" ] && ! [ -e "$d/exit" ] && { lives supervisor || lives child; }; do
  if [ "$until" = more ]; then
    if [ "$(size "$d/stdout")" -gt "$o" ] || [ "$(size "$d/stderr")" -gt "$e" ]; then break; fi
  fi
  nap; n=$((n + 1))
done
told=$(status)
echo "$told"
text() {
  if command -v base64 >/dev/null 2>&1; then echo "$1 base64"; base64
  else echo "$1 hex"; od -An -v -tx1; fi
}
more() {  # stream, from, size
  [ "$3" -gt "$2" ] || return 0
  k=$(($3 - $2))
  [ "$k" -le "$limit" ] || k=$limit
  tail -c "+$(($2 + 1))" "$d/$1" | head -c "$k" | text "$1"
}
ends() {  # stream, size
  [ "$2" -gt 0 ] || return 0
  if [ "$2" -le $((head + tail)) ]; then head -c "$2" "$d/$1"
  else head -c "$head" "$d/$1"; head -c "$2" "$d/$1" | tail -c "$tail"; fi | text "$1"
}
set -- $told
if [ "$until" = more ]; then more stdout "$o" "$5"; more stderr "$e" "$6"
elif [ "$2" != running ]; then ends stdout "$5"; ends stderr "$6"; rm -rf "$d"; fi
"""
)

_ANSWER: Final = re.compile(r"job (?P<state>[a-z_]+) (?P<code>-|\d+) (?P<at>-|\d+) (?P<stdout>\d+) (?P<stderr>\d+)")


@dataclass(frozen=True)
class Followed:
    """A job, and what was read of each of its streams in the same moment."""

    job: Job
    written: Mapping[Stream, bytes]


class ShellJobs:
    """The job operations over an adapter's `exec`.

    `directory` says where a sandbox keeps its jobs: absolute, from where commands start, or beginning with `$TMPDIR/`.
    """

    def __init__(self, call: ExecCall, directory: Callable[[Target], str] = lambda _: DIRECTORY) -> None:
        self._call = call
        self._directory = directory

    def start(self, target: Target, job: str, request: ExecRequest) -> Job:
        """Start it once: sent again after a lost answer, it finds the first. Another command is `InvalidState`."""
        digest = _digest(request)
        script = run_script(request)
        *ahead, last = _parts(script)
        parts = f"{self._directory(target)}/.parts-{job}-{digest[:16]}"
        for number, part in enumerate(ahead):
            self._send_ahead(target, parts, number, part)
        values = {"parts": parts, "length": str(len(script.encode())), "limit": str(request.timeout_seconds)}
        lines = self._run(target, job, _LAUNCHER, values, stdin=f"{digest}\n{last}")
        return _job(job, lines[0])

    def status(self, target: Target, job: str) -> Job:
        return _job(job, self._run(target, job, _STATUS, {})[0])

    def output(self, target: Target, job: str, stream: Stream, offset: int, limit: int) -> JobOutput:
        """At most `READ_BYTES_MAX` from `offset` on."""
        values = {"stream": stream, "offset": str(offset + 1), "limit": str(min(limit, READ_BYTES_MAX))}
        lines = self._run(target, job, _OUTPUT, values)
        seen = _job(job, lines[0])
        data = _decode(lines[1:])
        reached = offset + len(data)
        written = seen.stdout_bytes if stream == "stdout" else seen.stderr_bytes
        return JobOutput(data, reached, ended=seen.state is not JobState.RUNNING and reached >= written)

    def follow(self, target: Target, job: str, offsets: Mapping[Stream, int], limit: int, seconds: float) -> Followed:
        """What each stream has beyond `offsets`, up to `limit`; waits in the sandbox until there is any, or an end."""
        values = {"until": "more", "o": str(offsets["stdout"]), "e": str(offsets["stderr"]), "limit": str(limit)}
        return self._followed(target, job, values, seconds)

    def finish(self, target: Target, job: str, output_bytes_max: int, seconds: float) -> Followed:
        """Wait for the end; of each stream the first and last half of `output_bytes_max`, and then forget the job."""
        head = (output_bytes_max + 1) // 2
        values = {"until": "end", "head": str(head), "tail": str(output_bytes_max - head)}
        return self._followed(target, job, values, seconds)

    def _followed(self, target: Target, job: str, values: dict[str, str], seconds: float) -> Followed:
        values = {**values, "tenths": str(int(seconds * 10))}
        lines = self._run(target, job, _FOLLOW, values, bytes_max=FOLLOWED_BYTES_MAX)
        written: dict[Stream, bytes] = {"stdout": b"", "stderr": b""}
        starts = [number for number, line in enumerate(lines) if line.startswith(("stdout ", "stderr "))]
        for start, end in pairwise([*starts, len(lines)]):
            stream, _, how = lines[start].partition(" ")
            written["stdout" if stream == "stdout" else "stderr"] = _decode([how, *lines[start + 1 : end]])
        return Followed(_job(job, lines[0]), written)

    def stop(self, target: Target, job: str) -> Job:
        return _job(job, self._run(target, job, _STOP, {})[0])

    def interrupt(self, target: Target, job: str) -> Job:
        """Send SIGINT to the command's group and go; a command that takes its time, or ignores it, runs on."""
        return _job(job, self._run(target, job, _INTERRUPT, {})[0])

    def _send_ahead(self, target: Target, parts: str, number: int, part: str) -> None:
        # A numbered file each, written whole, so that sending one again changes nothing.
        command = _SEND_AHEAD.format(parts=shlex.quote(parts), number=number)
        result = self._call(target, _request(command, part), ANSWER_BYTES_MAX)
        if result.exit_code != 0:
            raise ProviderUnavailable("The job's command could not be stored in the sandbox.", settled=True)

    def _run(
        self,
        target: Target,
        job: str,
        script: str,
        values: dict[str, str],
        stdin: str | None = None,
        *,
        bytes_max: int = ANSWER_BYTES_MAX,
    ) -> Sequence[str]:
        if not re.fullmatch(JOB_ID_PATTERN, job):
            raise InvalidRequest("The job id is not valid.", field="job")
        values = {"d": f"{self._directory(target)}/{job}", **values}
        assigned = "\n".join(f"{name}={shlex.quote(value)}" for name, value in values.items())
        result = self._call(target, _request(f"{assigned}\n{script}", stdin), bytes_max)
        lines = result.stdout.decode("ascii", "replace").splitlines()
        return _checked(job, lines)


def _checked(job: str, lines: Sequence[str]) -> Sequence[str]:
    match lines[:1]:
        case ["missing"]:
            raise NotFound(f"There is no job {job!r} in the sandbox.")
        case ["other"]:
            raise InvalidState(f"Job {job} is another command.")
        case ["damaged"]:
            raise ProviderUnavailable("The job's command arrived cut off; it was not started.", settled=True)
        case ["unusable"]:
            raise ProviderUnavailable("The sandbox has no place to keep a job; it was not started.", settled=True)
        case [_]:
            return lines
        case _:
            raise ProviderUnavailable("The sandbox did not tell about the job.")


def _job(job: str, line: str) -> Job:
    answer = _ANSWER.fullmatch(line)
    if answer is None:
        raise ProviderUnavailable("The sandbox told something about the job that we do not understand.")
    code, at = answer["code"], answer["at"]
    return Job(
        id=job,
        state=JobState(answer["state"]),
        exit_code=None if code == "-" else int(code),
        started_at=None if at == "-" else datetime.fromtimestamp(int(at), UTC),
        stdout_bytes=int(answer["stdout"]),
        stderr_bytes=int(answer["stderr"]),
    )


def _decode(lines: Sequence[str]) -> bytes:
    if not lines:
        return b""
    how, *text = lines
    try:
        return base64.b64decode("".join(text), validate=True) if how == "base64" else bytes.fromhex("".join(text))
    except (binascii.Error, ValueError):
        raise ProviderUnavailable("The job's output arrived damaged.") from None


def _request(command: str, stdin: str | None) -> ExecRequest:
    return ExecRequest(command=command, stdin=stdin, timeout_seconds=CALL_SECONDS)


def _digest(request: ExecRequest) -> str:
    """Equal for equal commands, whatever order their environment was written in."""
    told = request.model_dump(mode="json", exclude={"encoding"})
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _parts(script: str) -> list[str]:
    characters = PART_BYTES // 4  # as many as fit whatever they are: no character is cut in two
    return [script[at : at + characters] for at in range(0, len(script), characters)]


def run_script(request: ExecRequest) -> str:
    """What becomes the command: $1 is the job's directory, $2 and $3 its umask and PATH."""
    lines = ['umask "$2"', "PATH=$3"]
    if request.stdin is not None:
        lines.append(f'{{ {_printed(request.stdin)}; }} > "$1/input" && exec < "$1/input" || exit 126')
    if request.cwd is not None:
        lines.append(f"cd -- {shlex.quote(request.cwd)} || exit 126")
    plain = {name: value for name, value in request.env.items() if name not in SHELL_OWNED}
    lines += [f"export {name}={shlex.quote(value)}" for name, value in plain.items()]
    words = [f"{name}={value}" for name, value in request.env.items() if name in SHELL_OWNED]
    words = ["/usr/bin/env", *words] if words else []
    lines.append(" ".join(["exec", *(shlex.quote(word) for word in [*words, *request.argv()])]))
    return "\n".join(lines) + "\n"


def _printed(text: str) -> str:
    """Commands that write `text`; a shell's own printf takes any length, and no word of a script can hold a NUL."""
    return r"; printf '\000'; ".join(f"printf %s {shlex.quote(part)}" for part in text.split("\0"))
