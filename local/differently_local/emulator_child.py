"""Runs in the emulator's own environment, without any code of ours: says who it is, then becomes the emulator.

The file is written by the process that it names, which holds the lock on it for life: so whoever finds the lock held
knows that pid, port and marker are those of a living process, without /proc.
"""

import json
import os
import runpy
import sys


def announce(path: str, marker: str, port: int) -> None:
    part = f"{path}.{os.getpid()}"
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump({"pid": os.getpid(), "port": port, "marker": marker}, file)
    os.replace(part, path)


if __name__ == "__main__":
    announce(sys.argv[1], os.environ["MINISTACK_EDITION"], int(os.environ["GATEWAY_PORT"]))
    sys.argv = ["ministack"]
    runpy.run_module("ministack", run_name="__main__", alter_sys=True)
