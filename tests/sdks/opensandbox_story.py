"""Run by the environment of the OpenSandbox SDK: one sandbox's life by its sync and its async client, told as JSON.

usage: opensandbox_story.py HOST:PORT API_KEY direct|proxied
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from opensandbox import Sandbox, SandboxSync
from opensandbox.config import ConnectionConfig
from opensandbox.config.connection_sync import ConnectionConfigSync
from opensandbox.manager import SandboxManager
from opensandbox.models.execd import RunCommandOpts
from opensandbox.models.filesystem import DirectoryListEntry, MoveEntry, WriteEntry
from opensandbox.models.sandboxes import SandboxFilter
from opensandbox.sync.manager import SandboxManagerSync

DOMAIN, KEY, MODE = sys.argv[1:]
LABELS = {"differently-sandbox-id": "sbx_sdk", "differently-installation": "inst_sdk"}
TIMEOUT = timedelta(minutes=5)


def settings() -> dict[str, Any]:
    return {"api_key": KEY, "domain": DOMAIN, "protocol": "http", "use_server_proxy": MODE == "proxied"}


def lines(execution: Any) -> list[str]:
    return [message.text for message in execution.logs.stdout]


def by_sync() -> dict[str, Any]:
    told: dict[str, Any] = {}
    config = ConnectionConfigSync(**settings())
    box = SandboxSync.create("python:3.12", timeout=TIMEOUT, env={"A": "1"}, metadata=LABELS, connection_config=config)
    told["id"] = box.id
    ran = box.commands.run("echo hi; echo $A; echo oops >&2; exit 3")
    told["ran"] = [lines(ran), [message.text for message in ran.logs.stderr], ran.exit_code]
    opts = RunCommandOpts(working_directory="/tmp", envs={"FOO": "bar"}, timeout=timedelta(seconds=20))
    told["with_options"] = lines(box.commands.run("pwd; echo $FOO", opts=opts))
    background = box.commands.run("echo from behind; exit 4", opts=RunCommandOpts(background=True))
    status = box.commands.get_command_status(background.id)
    while status.running:
        status = box.commands.get_command_status(background.id)
    told["background"] = [status.exit_code, box.commands.get_background_command_logs(background.id).content]
    session = box.commands.create_session()
    box.commands.run_in_session(session, "cd /tmp; export Q=5")
    told["session"] = lines(box.commands.run_in_session(session, "pwd; echo $Q"))
    box.commands.delete_session(session)
    box.files.write_file("/tmp/d/a.txt", "hello", mode=644)
    told["file"] = [
        box.files.read_file("/tmp/d/a.txt"),
        box.files.read_bytes("/tmp/d/a.txt", range_header="bytes=1-2").decode(),
    ]
    info = box.files.get_file_info(["/tmp/d/a.txt"])["/tmp/d/a.txt"]
    told["info"] = [info.size, info.mode, info.entry_type]
    box.files.move_files([MoveEntry(src="/tmp/d/a.txt", dest="/tmp/d/b.txt")])
    told["listed"] = [entry.path for entry in box.files.list_directory(DirectoryListEntry(path="/tmp/d"))]
    box.files.delete_files(["/tmp/d/b.txt"])
    box.files.delete_directories(["/tmp/d"])
    until = box.renew(timedelta(minutes=30)).expires_at
    told["renewed"] = (until - datetime.now(UTC)) > timedelta(minutes=25)
    told["metadata"] = box.patch_metadata({"x": "y"}).metadata
    told["port"] = box.get_endpoint(8080).endpoint
    told["policy"] = box.get_egress_policy().default_action
    box.files.write_file("/tmp/from-sdk", "left for the adapter")
    box.pause()
    told["paused"] = SandboxManagerSync.create(config).get_sandbox_info(box.id).status.state
    box = SandboxSync.resume(box.id, connection_config=config)
    told["resumed"] = box.get_info().status.state
    snapshot = box.create_snapshot("by-sdk")
    manager = SandboxManagerSync.create(config)
    while manager.get_snapshot(snapshot.id).status.state != "Ready":
        pass
    found = manager.list_sandbox_infos(SandboxFilter(metadata=LABELS, page_size=200))
    told["found"] = [item.id for item in found.sandbox_infos]
    box.close()
    return told


async def by_async() -> dict[str, Any]:
    told: dict[str, Any] = {}
    config = ConnectionConfig(**settings())
    box = await Sandbox.create("python:3.12", timeout=TIMEOUT, metadata={"of": "async"}, connection_config=config)
    ran = await box.commands.run("echo one; echo; printf two")
    told["ran"] = [lines(ran), ran.exit_code]
    await box.files.write_files([WriteEntry(path="/tmp/x/1", data=b"\x00\xff"), WriteEntry(path="/tmp/x/2", data="2")])
    told["bytes"] = list(await box.files.read_bytes("/tmp/x/1"))
    told["listed"] = [entry.path for entry in await box.files.list_directory(DirectoryListEntry(path="/tmp/x"))]
    other = await Sandbox.connect(box.id, connection_config=config)
    told["connected"] = (await other.get_info()).status.state
    await other.close()
    manager = await SandboxManager.create(config)
    await box.kill()
    left = await manager.list_sandbox_infos(SandboxFilter(metadata={"of": "async"}))
    told["left"] = len(left.sandbox_infos)
    await box.close()
    return told


print(json.dumps({"sync": by_sync(), "async": asyncio.run(by_async())}))
