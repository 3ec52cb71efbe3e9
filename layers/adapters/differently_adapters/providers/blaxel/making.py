"""One create: sent once under a name, by a call that gives back the sandbox which has it, and watched until it runs."""

from __future__ import annotations

import math
from typing import Final

from pydantic import JsonValue

from differently_core.contract import CreateRequest, Instance, InstanceState
from differently_core.errors import BackendError, DifferentlyError, InvalidState, NotFound, SandboxFailed
from differently_core.runtime.clock import Clock

from ...names import sandbox_name
from .api import Api, external_id
from .config import BlaxelConfig
from .wire import SandboxRead, instance, labels

ANSWER_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.25
LOOK_SECONDS_MAX: Final = 2.0
MIB_OF_CPU: Final = 2_048
STEP_MIB: Final = 512


class Maker:
    def __init__(self, api: Api, config: BlaxelConfig, clock: Clock) -> None:
        self._api = api
        self._config = config
        self._clock = clock

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        if request.from_snapshot is not None:
            raise NotFound("A Blaxel pool has no snapshots.")
        ends = self._clock.monotonic() + deadline
        seen = self._sent(request, min(deadline, ANSWER_SECONDS))
        try:
            return self._ready(request, seen, ends)
        except BackendError as error:
            error.settled = False  # the sandbox exists
            raise

    def _sent(self, request: CreateRequest, seconds: float) -> SandboxRead:
        try:
            return self._api.create(self._body(request), seconds)
        except DifferentlyError as error:
            if request.env:  # which a refusal may quote
                error.details.pop("provider_message", None)
            if not isinstance(error, BackendError) or error.settled:
                raise
            found = self._found(request)
            if found is None:
                raise
            return found

    def _found(self, request: CreateRequest) -> SandboxRead | None:
        try:
            return self._api.named(request.owner)
        except DifferentlyError:
            return None

    def _ready(self, request: CreateRequest, seen: SandboxRead, ends: float) -> Instance:
        pause = LOOK_SECONDS
        while True:
            if seen.owner != request.owner:
                raise InvalidState("The sandbox's name is taken at Blaxel by somebody else's.")
            if seen.status == "DELETING":
                raise InvalidState("The sandbox's instance is being deleted.")
            if seen.at is InstanceState.ERROR:
                raise SandboxFailed("Blaxel could not start the sandbox.")
            if seen.at is not InstanceState.PENDING or self._clock.monotonic() + pause >= ends:
                return instance(seen)
            self._clock.sleep(pause)
            pause = min(LOOK_SECONDS_MAX, pause * 1.5)
            try:
                seen = self._api.sandbox(seen.name)
            except NotFound:
                raise SandboxFailed("Blaxel removed the sandbox before it ran.") from None

    def _body(self, request: CreateRequest) -> dict[str, JsonValue]:
        size = request.size
        wanted = max(size.memory_mib, math.ceil(size.cpu_millis * MIB_OF_CPU / 1000), STEP_MIB)
        envs: list[JsonValue] = [{"name": name, "value": value} for name, value in request.env.items()]
        return {
            "metadata": {
                "name": sandbox_name(request.owner),
                "externalId": external_id(request.owner.installation),
                "labels": labels(request.owner),
            },
            "spec": {
                "enabled": True,
                "region": self._config.region,
                "runtime": {
                    "image": request.image or self._config.image,
                    "memory": math.ceil(wanted / STEP_MIB) * STEP_MIB,
                    "envs": envs,
                },
            },
        }
