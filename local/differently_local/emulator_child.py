"""Runs in the emulator's own environment, without any code of ours: says who it is, then becomes the emulator.

The file is written by the process that it names, which holds the lock on it for life: so whoever finds the lock held
knows that pid, port and marker are those of a living process, without /proc.
"""

import json
import os
import runpy
import sys
import threading
import time

LOOK_SECONDS = 1.0


def announce(path: str, marker: str, port: int) -> None:
    part = f"{path}.{os.getpid()}"
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump({"pid": os.getpid(), "port": port, "marker": marker}, file)
    os.replace(part, path)


def end_with_the_lock(handle: int) -> None:
    """End at once when the lock's file was removed: who removes the data directory wants none of it written back."""
    while os.fstat(handle).st_nlink > 0:
        time.sleep(LOOK_SECONDS)
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=end_with_the_lock, args=(int(sys.argv[2]),), daemon=True).start()
    announce(sys.argv[1], os.environ["MINISTACK_EDITION"], int(os.environ["GATEWAY_PORT"]))
    sys.argv = ["ministack"]
    runpy.run_module("ministack", run_name="__main__", alter_sys=True)
