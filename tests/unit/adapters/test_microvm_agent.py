"""The agent of the example image, as a process of its own: it starts execd for the owner it is told, and only then."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from differently_core.runtime.clock import SystemClock

AGENT = Path(__file__).resolve().parents[3] / "examples" / "lambda-microvm-image" / "agent.py"
HOOKS = "/aws/lambda-microvms/runtime/v1/"
WAIT_SECONDS = 20.0


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[str]:
    execd = tmp_path / "execd"
    execd.write_text(f"#!/bin/sh\necho \"$GREETING $EXECD_API_GRACE_SHUTDOWN\" > {tmp_path}/new && mv {tmp_path}/new "
                     f"{tmp_path}/started\n")  # fmt: skip
    execd.chmod(0o755)
    env = {"HOOK_PORT": "0", "EXECD_COMMAND": str(execd), "OWNER_PATH": f"{tmp_path}/run/owner.json", "PATH": "/bin"}
    with subprocess.Popen([sys.executable, AGENT, "127.0.0.1"], env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.terminate()


def post(url: str, body: bytes) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_it_starts_execd_when_it_knows_for_whom(agent: str, tmp_path: Path) -> None:
    assert post(f"{agent}{HOOKS}ready", b"") == 200
    assert not (tmp_path / "run" / "owner.json").exists()
    told = {"installation": "inst_a", "sandbox": "sbx_a", "env": {"GREETING": "hello there"}}
    assert post(f"{agent}{HOOKS}run", json.dumps(told).encode()) == 200
    owner = tmp_path / "run" / "owner.json"
    assert json.loads(owner.read_text()) == {"installation": "inst_a", "sandbox": "sbx_a"}
    assert owner.stat().st_mode & 0o777 == 0o444
    clock = SystemClock()
    ends = clock.monotonic() + WAIT_SECONDS
    while not (tmp_path / "started").exists() and clock.monotonic() < ends:
        clock.sleep(0.02)
    assert (tmp_path / "started").read_text() == "hello there 50ms\n"


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"installation": "inst_a"}', b'{"sandbox": "s", "env": 1}'])
def test_what_is_not_the_control_planes_starts_nothing(agent: str, tmp_path: Path, body: bytes) -> None:
    assert post(f"{agent}{HOOKS}run", body) == 500
    assert post(f"{agent}/elsewhere", b"") == 404
    assert not (tmp_path / "run" / "owner.json").exists()
