"""As much of a Kubernetes API as the OpenSandbox server uses, with a controller that makes sandboxes of directories.

Objects live in memory. A BatchSandbox becomes ready at once: its pod is a stand-in execd on a loopback address of its
own, which is what the server then tells its clients as the sandbox's endpoint.
"""

from __future__ import annotations

import json
import queue
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any
from uuid import uuid4

from differently_core.runtime.clock import SystemClock
from tests.conformance.adapters.opensandbox_fake.agent import Agent, Box, stamp
from tests.conformance.adapters.stand_in.faults import Fault
from tests.conformance.adapters.stand_in.http import Reply, Request, Server, told

EXECD_PORT = 44772
PATH = re.compile(
    r"(?P<group>/api/v1|/apis/[^/]+/[^/]+)(/namespaces/(?P<namespace>[^/]+))?(/(?P<plural>[^/]+))?(/(?P<name>[^/]+))?(/status)?"
)
SANDBOXES = "/apis/sandbox.opensandbox.io/v1alpha1/batchsandboxes"
ENDPOINTS = "sandbox.opensandbox.io/endpoints"
Object = dict[str, Any]


class Pod:
    """One sandbox: a directory, and an execd that answers on an address of its own."""

    def __init__(self, address: str, root: Path, env: dict[str, str], agent: Agent, faults: list[Fault]) -> None:
        self.address = address
        self.box = Box(root.name, root, env)
        self.awake = True
        self._agent = agent
        self._faults = faults
        self._server = Server(self._answer, lambda: self.awake, (address, EXECD_PORT), keep_alive=False)

    def _answer(self, request: Request) -> Reply:
        def go() -> Reply:
            return self._agent.answer(self.box, request, request.path)

        struck = next((fault for fault in self._faults if fault.strikes(request)), None)
        return go() if struck is None else struck.act(go, request, self._agent.closing)

    def sleep(self) -> None:
        self.awake = False
        self.box.signal_all(signal.SIGKILL)

    def end(self) -> None:
        self.sleep()
        self._server.close()
        shutil.rmtree(self.box.root, ignore_errors=True)


class KubeApi:
    """`network` is the part `127.a.b` of the addresses that pods get."""

    def __init__(self, root: Path, network: str) -> None:
        self.root = root
        self.faults: list[Fault] = []
        self.pods: dict[str, Pod] = {}
        self._network = network
        self._hosts = iter(range(2, 100_000))
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._watches: list[tuple[str, queue.Queue[Object]]] = []
        self._images: dict[str, Path] = {}
        self._version = 1
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._clock = SystemClock()
        self._agent = Agent(0.02, 3.0, self._closing)
        self._server = Server(self._answer, lambda: True, keep_alive=False)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._closing.set()
        for pod in self.pods.values():
            pod.end()
        self._server.close()

    def sandboxes(self) -> list[Object]:
        with self._lock:
            return [deepcopy(one) for (base, _, _), one in self._objects.items() if base.endswith("/batchsandboxes")]

    def clear(self) -> None:
        with self._lock:
            for key in list(self._objects):
                self._delete(key)

    # The API.

    def _answer(self, request: Request) -> Reply:
        match = PATH.fullmatch(request.path.rstrip("/"))
        if match is None:
            return _status(404, "NotFound")
        plural, namespace = match["plural"], match["namespace"] or ""
        if plural is None:
            return told(200, _resources(match["group"]) if not namespace else {"kind": "Namespace", "metadata": {}})
        base = f"{match['group']}/{plural}"
        if plural == "pods":
            return self._pods(match["name"], request)
        if match["name"] is None and request.method == "GET":
            watching = request.one("watch") not in {"", "false", "False"}
            return self._watch(base, request) if watching else self._list(base, namespace, request)
        with self._lock:
            if request.method == "POST":
                return self._create(base, namespace, request.json())
            return self._one((base, namespace, match["name"] or ""), request)

    def _pods(self, name: str | None, request: Request) -> Reply:
        """Each sandbox has one running pod, named after it."""
        with self._lock:
            found = {
                f"{one['metadata']['name']}-0": one
                for (base, _, _), one in self._objects.items()
                if base.endswith("/batchsandboxes") and self.pods[one["metadata"]["uid"]].awake
            }
            if name is not None:
                return told(200, _pod_of(name, found[name])) if name in found else _status(404, "NotFound")
            wanted = request.one("labelSelector").partition("=")[2]
            items = [_pod_of(name, one) for name, one in found.items() if wanted == one["metadata"]["name"]]
        return told(200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})

    def _create(self, base: str, namespace: str, made: Object) -> Reply:
        key = (base, namespace, made["metadata"]["name"])
        if key in self._objects:
            return _status(409, "AlreadyExists")
        made["metadata"] |= {
            "uid": str(uuid4()), "namespace": namespace, "generation": 1,
            "creationTimestamp": stamp(self._clock.now().replace(microsecond=0)),
        }  # fmt: skip
        self._objects[key] = made
        self._controlled(key, made)
        self._publish("ADDED", key, made)
        return told(201, made)

    def _one(self, key: tuple[str, str, str], request: Request) -> Reply:
        found = self._objects.get(key)
        if found is None:
            return _status(404, "NotFound")
        if request.method in {"PATCH", "PUT"}:
            changes = request.json()
            if isinstance(changes, list):
                return _status(415, "UnsupportedMediaType")
            _merge(found, changes)
            self._controlled(key, found)
            self._publish("MODIFIED", key, found)
        elif request.method == "DELETE":
            self._delete(key)
            return told(200, {"kind": "Status", "status": "Success"})
        return told(200, found)

    def _delete(self, key: tuple[str, str, str]) -> None:
        found = self._objects.pop(key)
        pod = self.pods.pop(found["metadata"]["uid"], None)
        if pod is not None:
            pod.end()
        self._publish("DELETED", key, found)

    def _list(self, base: str, namespace: str, request: Request) -> Reply:
        wanted = [part for part in request.one("labelSelector").split(",") if part]
        with self._lock:
            items = [
                deepcopy(one)
                for (kind, place, _), one in self._objects.items()
                if kind == base and namespace in {"", place} and _selected(one, wanted)
            ]
            version = str(self._version)
        return told(200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items})

    def _watch(self, base: str, request: Request) -> Reply:
        news: queue.Queue[Object] = queue.Queue()
        with self._lock:
            self._watches.append((base, news))

        def events() -> Iterator[bytes]:
            ends = self._clock.monotonic() + float(request.one("timeoutSeconds", "60"))
            while not self._closing.is_set() and self._clock.monotonic() < ends:
                try:
                    yield json.dumps(news.get(timeout=0.1)).encode() + b"\n"
                except queue.Empty:
                    continue

        return Reply(200, headers={"content-type": "application/json"}, stream=events())

    def _publish(self, kind: str, key: tuple[str, str, str], one: Object) -> None:
        self._version += 1
        one["metadata"]["resourceVersion"] = str(self._version)
        for base, news in self._watches:
            if base == key[0]:
                news.put({"type": kind, "object": deepcopy(one)})

    # The controller.

    def _controlled(self, key: tuple[str, str, str], one: Object) -> None:
        """Bring an object to what its specification asks for."""
        if key[0].endswith("/sandboxsnapshots"):
            self._captured(one)
        if not key[0].endswith("/batchsandboxes"):
            return
        pod = self.pods.get(one["metadata"]["uid"]) or self._pod(one)
        paused = one["spec"].get("pause") is True
        if paused and pod.awake:
            pod.sleep()
        pod.awake = not paused
        one["metadata"].setdefault("annotations", {})[ENDPOINTS] = json.dumps([pod.address])
        phase, ready = ("Paused", 0) if paused else ("Succeed", 1)
        one["status"] = {
            "replicas": 1, "allocated": 1, "ready": ready, "phase": phase, "observedGeneration": 1, "conditions": []
        }  # fmt: skip

    def _captured(self, one: Object) -> None:
        """The disk of the named sandbox becomes an image, from which later sandboxes start."""
        uri = f"registry.example.test/snapshot:{one['metadata']['name']}"
        if uri not in self._images:
            source = self._objects[SANDBOXES, one["metadata"]["namespace"], one["spec"]["sandboxName"]]
            root = self.root / f"image-{one['metadata']['uid']}"
            shutil.copytree(self.pods[source["metadata"]["uid"]].box.root, root, symlinks=True)
            self._images[uri] = root
        one["status"] = {
            "phase": "Succeed", "conditions": [], "containers": [{"containerName": "sandbox", "imageUri": uri}]
        }  # fmt: skip

    def _pod(self, one: Object) -> Pod:
        containers = one["spec"].get("template", {}).get("spec", {}).get("containers", [{}])
        env = {entry["name"]: entry.get("value", "") for entry in containers[0].get("env", [])}
        number = next(self._hosts)
        address = f"{self._network}.{number % 250 + 2}"
        uid = one["metadata"]["uid"]
        image = self._images.get(containers[0].get("image", ""))
        if image is not None:
            shutil.copytree(image, self.root / uid, symlinks=True)
        pod = Pod(address, self.root / uid, env, self._agent, self.faults)
        self.pods[uid] = pod
        return pod


def _pod_of(name: str, one: Object) -> Object:
    container = {
        "name": "sandbox",
        "ready": True,
        "state": {"running": {}},
        "image": "x",
        "imageID": "",
        "restartCount": 0,
    }
    return {
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "labels": one["metadata"].get("labels", {})},
        "spec": one["spec"].get("template", {}).get("spec", {}),
        "status": {"phase": "Running", "containerStatuses": [container]},
    }  # fmt: skip


def _merge(one: Object, changes: Object) -> None:
    for name, value in changes.items():
        if value is None:
            one.pop(name, None)
        elif isinstance(value, dict) and isinstance(one.get(name), dict):
            _merge(one[name], value)
        else:
            one[name] = value


def _selected(one: Object, wanted: list[str]) -> bool:
    labels = one["metadata"].get("labels", {})
    return all(labels.get(part.split("=")[0]) == part.partition("=")[2] if "=" in part else part in labels
               for part in wanted)  # fmt: skip


def _status(code: int, reason: str) -> Reply:
    return told(code, {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason})


def _resources(group: str) -> Object:
    kinds = ("batchsandboxes", "pools", "sandboxsnapshots")
    resources = [{"name": k, "kind": k, "namespaced": True, "singularName": k, "verbs": ["get"]} for k in kinds]
    return {"kind": "APIResourceList", "groupVersion": group.removeprefix("/apis/"), "resources": resources}
