"""One create: looked for before, sent once under a name that is unique in the app, and watched until it runs."""

from __future__ import annotations

import math
from typing import Final

from pydantic import JsonValue

from differently_core.contract import CreateRequest, Instance, InstanceState
from differently_core.errors import (
    BackendError,
    DifferentlyError,
    InvalidRequest,
    InvalidState,
    NotFound,
    SandboxFailed,
)
from differently_core.runtime.clock import Clock

from ...names import sandbox_name
from .api import Api
from .config import FlyConfig
from .wire import MachineRead, instance, metadata

ANSWER_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.25
LOOK_SECONDS_MAX: Final = 2.0
STEP_MIB: Final = 256


class Maker:
    def __init__(self, api: Api, config: FlyConfig, clock: Clock) -> None:
        self._api = api
        self._config = config
        self._clock = clock

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        if request.from_snapshot is not None:
            raise NotFound("A Fly pool has no snapshots.")
        ends = self._clock.monotonic() + deadline
        found = self._api.owned(request.owner)
        seen = found[0] if found else self._sent(request, min(deadline, ANSWER_SECONDS))
        try:
            return self._ready(request, seen, ends)
        except BackendError as error:
            error.settled = False  # the machine exists
            raise

    def _sent(self, request: CreateRequest, seconds: float) -> MachineRead:
        try:
            return self._api.create(self._body(request), seconds)
        except (InvalidState, BackendError) as error:
            self._forget(error, request)
            taken = error.details.get("reason") == "name_taken"
            if not taken and (not isinstance(error, BackendError) or error.settled):
                raise
            found = self._found(request)
            if found is None:
                raise
            return found
        except DifferentlyError as error:
            self._forget(error, request)
            raise

    def _forget(self, error: DifferentlyError, request: CreateRequest) -> None:
        if request.env:  # which a refusal may quote
            error.details.pop("provider_message", None)

    def _found(self, request: CreateRequest) -> MachineRead | None:
        try:
            return next(iter(self._api.owned(request.owner)), None)
        except DifferentlyError:
            return None

    def _ready(self, request: CreateRequest, seen: MachineRead, ends: float) -> Instance:
        pause = LOOK_SECONDS
        while True:
            if seen.owner != request.owner:
                raise SandboxFailed("Fly does not keep the metadata that says whose the machine is.")
            if seen.state == "destroying":
                raise InvalidState("The sandbox's machine is being destroyed.")
            if seen.at is InstanceState.ERROR:
                raise SandboxFailed("Fly could not start the machine.")
            if seen.at is not InstanceState.PENDING or self._clock.monotonic() + pause >= ends:
                return instance(seen)
            self._clock.sleep(pause)
            pause = min(LOOK_SECONDS_MAX, pause * 1.5)
            try:
                seen = self._api.machine(seen.id)
            except NotFound:
                raise SandboxFailed("Fly destroyed the machine before it ran.") from None

    def _body(self, request: CreateRequest) -> dict[str, JsonValue]:
        image = request.image or self._config.image
        if image is None:
            raise InvalidRequest(
                "No image: neither the sandbox, nor its template, nor the pool names one.", field="image"
            )
        size = request.size
        cpus = max(1, math.ceil(size.cpu_millis / 1000))
        memory = max(1, math.ceil(size.memory_mib / STEP_MIB)) * STEP_MIB
        body: dict[str, JsonValue] = {
            "name": sandbox_name(request.owner),
            "config": {
                "image": image,
                "env": {**request.env},
                "metadata": metadata(request.owner),
                "guest": {
                    "cpu_kind": self._config.cpu_kind, "cpus": cpus, "memory_mb": memory,
                    # Without it a start begins with a new disk.
                    "persist_rootfs": "always",
                },
                "init": {"exec": [*self._config.init]},
                "restart": {"policy": "no"},
                "auto_destroy": False,
            },
        }  # fmt: skip
        return body | ({"region": self._config.region} if self._config.region is not None else {})
