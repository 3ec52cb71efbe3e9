"""What a create sends, and what is watched for around it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pydantic import JsonValue

from differently_core.contract import CreateRequest, Owner
from differently_core.errors import InvalidRequest

from . import egress
from .config import OpenSandboxConfig
from .wire import KEY_INSTALLATION, KEY_SANDBOX, SandboxRead

TIMEOUT_SECONDS_MIN: Final = 60
SPARE_SECONDS: Final = 300
"""The backend's own timer ends what we forgot; it must not be faster than we are."""
STALLED_SANDBOXES: Final = 3
STALLED_ORGS: Final = 2
DEFAULT_LIMITS: Final[dict[str, JsonValue]] = {"cpu": "1000m", "memory": "512Mi"}


def labels(owner: Owner) -> dict[str, str]:
    return {KEY_INSTALLATION: owner.installation, KEY_SANDBOX: owner.sandbox}


def body(request: CreateRequest, config: OpenSandboxConfig) -> dict[str, JsonValue]:
    """Every ownership key and a timeout are always sent: what is left out would be inherited from a snapshot's source,
    and a sandbox without a timeout can never be renewed.
    """
    timeout = max(TIMEOUT_SECONDS_MIN, request.ttl_seconds + SPARE_SECONDS)
    sent: dict[str, JsonValue] = {
        "timeout": min(timeout, config.timeout_seconds_max),
        "metadata": {**labels(request.owner)},
    }
    sent |= egress.policy(config, request.egress)
    if request.env:
        sent["env"] = {**request.env}
    if request.from_snapshot is not None:
        if config.template_id is not None or config.pool_ref is not None:
            raise InvalidRequest("This pool makes sandboxes from its template or warm pods, not from snapshots.")
        return sent | {
            "snapshotId": request.from_snapshot, "resourceLimits": limits(request), "entrypoint": [*config.entrypoint]
        }  # fmt: skip
    if config.template_id is not None:
        return _from_template(request, config, sent)
    if config.pool_ref is not None:
        return sent | {"extensions": {"poolRef": config.pool_ref}, "entrypoint": [*config.entrypoint]}
    image = request.image or config.image
    if image is None:
        raise InvalidRequest("No image: neither the sandbox, nor its template, nor the pool names one.", field="image")
    sent |= {"image": {"uri": image}, "resourceLimits": limits(request), "entrypoint": [*config.entrypoint]}
    if config.ports == "signed":
        sent["secureAccess"] = True  # without it the gateway lets everybody in who knows the sandbox's id
    return sent


def _from_template(
    request: CreateRequest, config: OpenSandboxConfig, sent: dict[str, JsonValue]
) -> dict[str, JsonValue]:
    if request.image is not None:
        raise InvalidRequest("This pool makes sandboxes from its template; name no image.", field="image")
    if request.env:
        raise InvalidRequest("This pool's template takes no environment; give it with each command.", field="env")
    return sent | {"templateId": config.template_id}


def limits(request: CreateRequest) -> dict[str, JsonValue]:
    size = request.size
    asked: dict[str, JsonValue] = {}
    if size.cpu_millis:
        asked["cpu"] = f"{size.cpu_millis}m"
    if size.memory_mib:
        asked["memory"] = f"{size.memory_mib}Mi"
    return asked or DEFAULT_LIMITS


def relabelling(seen: SandboxRead, owner: Owner, *, restored: bool) -> dict[str, str | None]:
    """What to change so that the sandbox carries our labels, and a restored one none of its source's."""
    has, ours = seen.metadata or {}, labels(owner)
    foreign: dict[str, str | None] = dict.fromkeys(has.keys() - ours.keys() if restored else ())
    return foreign | {key: value for key, value in ours.items() if has.get(key) != value}


class Underway:
    """The creates that run in this process, and which of them nobody wants any more."""

    def __init__(self) -> None:
        self._unwanted: dict[Owner, list[threading.Event]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def of(self, owner: Owner) -> Iterator[threading.Event]:
        unwanted = threading.Event()
        with self._lock:
            self._unwanted.setdefault(owner, []).append(unwanted)
        try:
            yield unwanted
        finally:
            with self._lock:
                self._unwanted[owner].remove(unwanted)
                if not self._unwanted[owner]:
                    del self._unwanted[owner]

    def mark(self, owner: Owner) -> None:
        with self._lock:
            for unwanted in self._unwanted.get(owner, ()):
                unwanted.set()


class Stalls:
    """Creates that ended as "not ready in time", one after another without a success between them.

    One tenant's image that never starts looks the same as a server whose cache stands still and which then removes
    healthy sandboxes. Only several sandboxes of several tenants speak against the server.
    """

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def add(self, request: CreateRequest) -> bool:
        """Note one; True when the server is to blame."""
        with self._lock:
            self._seen.add((request.org, request.owner.sandbox))
            orgs = {org for org, _ in self._seen}
            return len(self._seen) >= STALLED_SANDBOXES and len(orgs) >= STALLED_ORGS

    def clear(self) -> None:
        with self._lock:
            self._seen.clear()
