"""`python -m differently_local`, which is what `make run` runs."""

from __future__ import annotations

import os
import sys

from .environment import isolate
from .failure import StartFailure
from .signals import StopRequest


def main() -> int:
    # First of all, so that an early Ctrl-C ends in order too: loading the rest takes a moment.
    stop = StopRequest()
    stop.listen()
    isolate(os.environ)
    from . import logs, settings

    try:
        chosen = settings.read(os.environ)
    except StartFailure as failure:
        print(f"differently: {failure}", file=sys.stderr)
        return 2
    logs.configure(chosen.log_format, chosen.log_level)
    from .control_plane import run

    return run(chosen, stop)


if __name__ == "__main__":
    code = main()
    # Everything was ended in order; a thread that still waits for a backend must not hold the process.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
