"""The official E2B SDK 2.63.0 takes our stand-in for the real thing, and our adapter meets it there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from differently_adapters.providers.e2b import E2bAdapter, E2bConfig
from differently_adapters.testing import a_create_request
from differently_core.contract import AdapterContext, EgressAction, EgressRules, InstanceState, Owner, Target
from differently_core.model.exec import ExecRequest
from differently_core.runtime.clock import SystemClock
from tests.conformance.adapters.e2b_fake import FakeE2b
from tests.conformance.adapters.stand_in.http import Request

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-e2b" / "bin" / "python"
STORY = Path(__file__).with_name("e2b_story.py")
KEY = "e2b_0123456789abcdef"
OWNER = Owner("inst_sdk", "sbx_sdk")

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="the SDK's own environment is not there; `make test-sdks` makes it"
)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeE2b]:
    fake = FakeE2b(tmp_path, api_key=KEY)
    yield fake
    fake.close()


def tell(fake: FakeE2b) -> dict[str, Any]:
    # Nothing of ours, and no telemetry setting or proxy of the host's, reaches the vendor's code.
    ran = subprocess.run(
        [str(PYTHON), str(STORY), fake.url, KEY], capture_output=True, text=True, timeout=100,
        env={"PATH": "/usr/bin:/bin", "HOME": str(fake.root)}, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-4000:]
    told: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return told


def adapter_for(fake: FakeE2b) -> E2bAdapter:
    config = E2bConfig(api_url=fake.url, sandbox_url=fake.url, allow_http=True, allow_loopback=True)
    return E2bAdapter(AdapterContext("p", OWNER.installation, config, SystemClock(), {"api_key": KEY}))


def test_the_sdk_lives_a_sandboxs_whole_life_on_the_stand_in(fake: FakeE2b) -> None:
    told = tell(fake)
    assert told.pop("id") == told.pop("again")
    assert told == {
        "ran": ["hi\n1\n", "oops\n", 0],
        "failed": ["out\n", 3],
        "late": True,
        "stdin": "typed",
        "killed": [True, False],
        "alive": True,
        "read": [0, *b"left"],
        "listed": ["from-sdk"],
        "made": [True, False, False],
        "paused": "paused",
        "resumed": ["running", "21"],
        "snapshot": [True, False],
        "pages": True,
        "ended": [True, True, False],
        "gone": True,
    }


def test_the_adapter_and_the_sdk_see_the_same_sandbox(fake: FakeE2b) -> None:
    identity = tell(fake)["id"]
    adapter, target = adapter_for(fake), Target(OWNER)
    assert (adapter.get(target).ref, adapter.get(target).state) == (identity, InstanceState.RUNNING)
    assert b"".join(adapter.file_read(target, "dir/from-sdk").chunks) == b"\0left for the adapter"
    assert adapter.exec(target, ExecRequest(command="echo $A"), 100).stdout == b"1\n"
    adapter.delete(target)
    assert fake.count() == 0
    adapter.close()


def shape(request: Request) -> tuple[str, str, frozenset[str]]:
    """Method, path and fields of a call, without what is a value."""
    body = json.loads(request.body) if request.body.startswith(b"{") else {}
    path = "/".join("{id}" if part.startswith("i") and len(part) == 20 else part for part in request.path.split("/"))
    return request.method, path, frozenset(body)


def test_the_adapter_asks_for_what_the_sdk_asks_for(fake: FakeE2b) -> None:
    """Allowed differences: the adapter sends fields that the SDK leaves out, and looks at what it changes."""
    tell(fake)
    theirs = {(method, path): fields for method, path, fields in map(shape, fake.requests)}
    fake.requests.clear()
    adapter = adapter_for(fake)
    request = a_create_request(Owner(OWNER.installation, "sbx_other"))
    target = Target(request.owner, adapter.create(request, 30.0).ref)
    adapter.egress_set(target, EgressRules(EgressAction.DENY, allow=("example.com",)))
    adapter.exec(target, ExecRequest(command="true"), 100)
    adapter.list(OWNER.installation)
    adapter.delete(target)
    adapter.close()
    ours = {(method, path): fields for method, path, fields in map(shape, fake.requests)}
    assert set(ours) <= set(theirs)
    assert ours["PUT", "/sandboxes/{id}/network"] == theirs["PUT", "/sandboxes/{id}/network"]
    assert ours["POST", "/v2/sandboxes"] >= {"templateID", "timeout", "metadata", "envVars"}
