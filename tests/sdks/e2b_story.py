"""Run by the environment of the E2B SDK: one sandbox's life by its client, told as JSON.

usage: e2b_story.py URL API_KEY
"""

from __future__ import annotations

import json
import sys
from typing import Any

from e2b import CommandExitException, NotFoundException, Sandbox, SandboxQuery, TimeoutException

URL, KEY = sys.argv[1:]
LABELS = {"differently-sandbox-id": "sbx_sdk", "differently-installation": "inst_sdk"}
OPTS: dict[str, Any] = {"api_url": URL, "sandbox_url": URL, "api_key": KEY, "validate_api_key": False}


def life() -> dict[str, Any]:
    told: dict[str, Any] = {}
    made = {"template": "base", "timeout": 300, "metadata": LABELS, "envs": {"A": "1"}, "idempotency_key": "sdk-01"}
    box = Sandbox.create(**made, **OPTS)
    told["id"] = box.sandbox_id
    told["again"] = Sandbox.create(**made, **OPTS).sandbox_id
    ran = box.commands.run("echo hi; echo $A; echo oops >&2")
    told["ran"] = [ran.stdout, ran.stderr, ran.exit_code]
    try:
        box.commands.run("echo out; exit 3")
    except CommandExitException as failed:
        told["failed"] = [failed.stdout, failed.exit_code]
    try:
        box.commands.run("sleep 30", timeout=1)
    except TimeoutException:
        told["late"] = True
    handle = box.commands.run("cat", background=True, stdin=True)
    box.commands.send_stdin(handle.pid, "typed")
    box.commands.close_stdin(handle.pid)
    told["stdin"] = handle.wait().stdout
    sleeper = box.commands.run("sleep 60", background=True)
    told["killed"] = [sleeper.kill(), box.commands.kill(2**22)]
    told["alive"] = box.is_running()
    box.files.write("dir/from-sdk", b"\x00left for the adapter")
    told["read"] = list(box.files.read("dir/from-sdk", format="bytes")[:5])
    told["listed"] = [entry.name for entry in box.files.list("dir")]
    told["made"] = [box.files.make_dir("other"), box.files.make_dir("other"), box.files.exists("nothing")]
    box.files.remove("other")
    box.set_timeout(600)
    box.update_network({"deny_out": ["0.0.0.0/0"], "allow_out": ["example.com"]})
    box.pause()
    told["paused"] = Sandbox.get_info(box.sandbox_id, **OPTS).state.value
    box = Sandbox.connect(box.sandbox_id, timeout=300, **OPTS)
    told["resumed"] = [box.get_info().state.value, box.commands.run("cat dir/from-sdk | wc -c").stdout.strip()]
    snapshot = box.create_snapshot()
    told["snapshot"] = [Sandbox.delete_snapshot(snapshot.snapshot_id, **OPTS),
                        Sandbox.delete_snapshot(snapshot.snapshot_id, **OPTS)]  # fmt: skip
    others = [Sandbox.create("base", metadata={"odd key": "a/b c"}, **OPTS) for _ in range(2)]
    pages = Sandbox.list(query=SandboxQuery(metadata={"odd key": "a/b c"}), limit=1, **OPTS)
    found = []
    while pages.has_next:
        found.append([entry.sandbox_id for entry in pages.next_items()])
    told["pages"] = sorted(found) == sorted([one.sandbox_id] for one in others)
    told["ended"] = [one.kill() for one in [*others, others[0]]]
    try:
        Sandbox.get_info(others[0].sandbox_id, **OPTS)
    except NotFoundException:
        told["gone"] = True
    return told


print(json.dumps(life()))
