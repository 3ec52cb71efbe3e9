"""The official Daytona SDK 0.226.1 takes our stand-in for the real thing, and our adapter meets it there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from differently_adapters.names import sandbox_name
from differently_adapters.providers.daytona import DaytonaAdapter, DaytonaConfig
from differently_core.contract import AdapterContext, InstanceState, Owner, Target
from differently_core.model.exec import ExecRequest
from differently_core.runtime.clock import SystemClock
from tests.conformance.adapters.daytona_fake import FakeDaytona

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-daytona" / "bin" / "python"
STORY = Path(__file__).with_name("daytona_story.py")
KEY = "dtn_0123456789abcdef"
OWNER = Owner("inst_sdk", "sbx_sdk")

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="the SDK's own environment is not there; `make test-sdks` makes it"
)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeDaytona]:
    fake = FakeDaytona(tmp_path, api_key=KEY)
    yield fake
    fake.close()


def tell(fake: FakeDaytona) -> dict[str, Any]:
    # Nothing of ours, and no telemetry setting or proxy of the host's, reaches the vendor's code.
    ran = subprocess.run(
        [str(PYTHON), str(STORY), f"{fake.url}/api", KEY, sandbox_name(OWNER)], capture_output=True, text=True,
        timeout=100, env={"PATH": "/usr/bin:/bin", "HOME": str(fake.root)}, cwd=fake.root, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-4000:]
    told: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return told


def test_the_sdk_lives_a_sandboxs_whole_life_on_the_stand_in(fake: FakeDaytona) -> None:
    told = tell(fake)
    identity = told.pop("id")
    assert told == {
        "taken": 409,
        "ran": [7, ["1", "hi", "oops"]],
        "read": [0, *b"left"],
        "listed": ["from-sdk"],
        "port": 8080,
        "stopped": "stopped",
        "started": "started",
        "kept": "21",
        "found": [identity],
        "gone": True,
    }


def test_the_adapter_and_the_sdk_see_the_same_sandbox(fake: FakeDaytona) -> None:
    identity = tell(fake)["id"]
    config = DaytonaConfig(api_url=f"{fake.url}/api", allow_http=True, allow_loopback=True)
    adapter = DaytonaAdapter(AdapterContext("p", OWNER.installation, config, SystemClock(), {"api_key": KEY}))
    target = Target(OWNER)
    assert (adapter.get(target).ref, adapter.get(target).state) == (identity, InstanceState.RUNNING)
    assert b"".join(adapter.file_read(target, "dir/from-sdk").chunks) == b"\0left for the adapter"
    assert adapter.exec(target, ExecRequest(command="echo $A"), 100).stdout == b"1\n"
    adapter.file_write(target, "dir/from-adapter", [b"x"])
    adapter.delete(target)
    adapter.close()
