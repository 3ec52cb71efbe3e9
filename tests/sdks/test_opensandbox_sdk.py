"""The official OpenSandbox SDK 1.1.1 takes our stand-in for the real thing, and our adapter meets it there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from differently_adapters.providers.opensandbox import OpenSandboxAdapter, OpenSandboxConfig
from differently_core.contract import AdapterContext, InstanceState, Owner, Target
from differently_core.model.exec import ExecRequest
from differently_core.runtime.clock import SystemClock
from tests.conformance.adapters.opensandbox_fake import FakeOpenSandbox

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-opensandbox" / "bin" / "python"
STORY = Path(__file__).with_name("opensandbox_story.py")
OWNER = Owner("inst_sdk", "sbx_sdk")
API_KEY = "key-of-the-operator"

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="the SDK's own environment is not there; `make test-sdks` makes it"
)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeOpenSandbox]:
    fake = FakeOpenSandbox(tmp_path, api_key=API_KEY, grace_seconds=0.02)
    yield fake
    fake.close()


def tell(fake: FakeOpenSandbox, mode: str) -> dict[str, Any]:
    command = [str(PYTHON), str(STORY), f"127.0.0.1:{fake.port}", API_KEY, mode]
    # Nothing of ours, and no telemetry setting or proxy of the host's, reaches the vendor's code.
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=100, env={"PATH": "/usr/bin:/bin"}, check=False
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    told: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return told


@pytest.mark.parametrize("mode", ["direct", "proxied"])
def test_the_sdk_lives_a_sandboxs_whole_life_on_the_stand_in(fake: FakeOpenSandbox, mode: str) -> None:
    told = tell(fake, mode)
    identity = told["sync"].pop("id")
    assert told["sync"].pop("port")
    assert told["sync"] == {
        "ran": [["hi", "1"], ["oops"], 3],
        "with_options": ["/tmp", "bar"],
        "background": [4, "from behind\n"],
        "session": ["/tmp", "5"],
        "file": ["hello", "el"],
        "info": [5, 644, "file"],
        "listed": ["/tmp/d/b.txt"],
        "renewed": True,
        "metadata": {"differently-sandbox-id": "sbx_sdk", "differently-installation": "inst_sdk", "x": "y"},
        "policy": "deny",
        "paused": "Paused",
        "resumed": "Running",
        "found": [identity],
    }
    assert told["async"] == {
        "ran": [["one", "\n", "two"], 0],
        "bytes": [0, 255],
        "listed": ["/tmp/x/1", "/tmp/x/2"],
        "connected": "Running",
        "left": 0,
    }


def test_the_adapter_and_the_sdk_see_the_same_sandbox(fake: FakeOpenSandbox) -> None:
    identity = tell(fake, "direct")["sync"]["id"]
    config = OpenSandboxConfig(api_url=fake.url, runtime="docker", allow_http=True, allow_loopback=True)
    adapter = OpenSandboxAdapter(AdapterContext("p", "inst_sdk", config, SystemClock(), {"api_key": API_KEY}))
    target = Target(OWNER)
    assert (adapter.get(target).ref, adapter.get(target).state) == (identity, InstanceState.RUNNING)
    assert b"".join(adapter.file_read(target, "/tmp/from-sdk").chunks) == b"left for the adapter"
    assert adapter.exec(target, ExecRequest(command="echo $A"), 100).stdout == b"1\n"
    adapter.delete(target)
    assert fake.count() == 0
    adapter.close()
