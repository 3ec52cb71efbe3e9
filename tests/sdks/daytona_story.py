"""Run by the environment of the Daytona SDK: one sandbox's life by its client, told as JSON.

usage: daytona_story.py URL API_KEY
"""

from __future__ import annotations

import json
import sys
from typing import Any

from daytona import CreateSandboxFromSnapshotParams, Daytona, DaytonaConfig, DaytonaError, DaytonaNotFoundError

URL, KEY, NAME = sys.argv[1:]
LABELS = {"differently-sandbox-id": "sbx_sdk", "differently-installation": "inst_sdk"}


def life() -> dict[str, Any]:
    told: dict[str, Any] = {}
    client = Daytona(DaytonaConfig(api_key=KEY, api_url=URL, target="us", use_deprecated_polling=True))
    params = CreateSandboxFromSnapshotParams(
        name=NAME, snapshot="base", labels=LABELS, env_vars={"A": "1"}, auto_stop_interval=0, ttl_minutes=60
    )
    box = client.create(params)
    told["id"] = box.id
    try:
        client.create(params)
    except DaytonaError as taken:
        told["taken"] = taken.status_code
    ran = box.process.exec("echo hi; echo $A; echo oops >&2; exit 7")
    told["ran"] = [ran.exit_code, sorted(ran.result.split())]
    box.fs.create_folder("dir", "755")
    box.fs.upload_file(b"\x00left for the adapter", "dir/from-sdk")
    told["read"] = list(box.fs.download_file("dir/from-sdk")[:5])
    told["listed"] = [entry.name for entry in box.fs.list_files("dir")]
    told["port"] = box.create_signed_preview_url(8080, 60).port
    box.update_network_settings(network_block_all=True)
    box.stop()
    told["stopped"] = box.state.value
    box.start()
    told["started"] = box.state.value
    told["kept"] = box.process.exec("cat dir/from-sdk | wc -c").result.strip()
    told["found"] = [one.id for one in client.list()]
    other = client.create(CreateSandboxFromSnapshotParams(name="other", snapshot="base"))
    other.delete()
    try:
        client.get("other")
    except DaytonaNotFoundError:
        told["gone"] = True
    return told


print(json.dumps(life()))
