"""One create: sent once under a name that is unique at Daytona, and watched until the sandbox runs."""

from __future__ import annotations

import math
import re
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
from . import egress, snapshots
from .api import Api
from .config import DaytonaConfig
from .wire import SandboxRead, instance, labels

SPARE_SECONDS: Final = 300
"""Daytona's own timer ends what we forgot; it must not be faster than we are."""
ANSWER_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.25
POLL_SECONDS_MAX: Final = 2.0
_IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,511}")


class Maker:
    def __init__(self, api: Api, config: DaytonaConfig, clock: Clock) -> None:
        self._api = api
        self._config = config
        self._clock = clock

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        ends = self._clock.monotonic() + deadline
        if request.from_snapshot is not None:
            snapshots.check(self._api, request.from_snapshot, request.owner.installation)
        seen = self._sent(request, min(deadline, ANSWER_SECONDS))
        try:
            return self._ready(request, seen, ends)
        except (BackendError, NotFound) as error:
            if isinstance(error, BackendError):
                error.settled = False  # the look failed, the create did not
            raise

    def _sent(self, request: CreateRequest, seconds: float) -> SandboxRead:
        try:
            return self._asked(request, seconds)
        except InvalidState as error:
            found = self._api.named(request.owner) if error.details.get("reason") == "name_taken" else None
            if found is None:
                raise
            return found
        except BackendError as error:
            if error.settled:
                raise
            try:
                found = self._api.named(request.owner)
            except DifferentlyError:
                found = None
            if found is None:
                raise
            return found

    def _asked(self, request: CreateRequest, seconds: float) -> SandboxRead:
        try:
            return self._api.create(self._body(request), seconds)
        except DifferentlyError as error:
            if request.env:  # which a refusal may quote
                error.details.pop("provider_message", None)
            raise

    def _ready(self, request: CreateRequest, seen: SandboxRead, ends: float) -> Instance:
        pause = POLL_SECONDS
        while True:
            if seen.owner != request.owner:
                raise InvalidState("The sandbox's name is taken at Daytona by somebody else's.")
            if seen.desired_state == "destroyed":
                raise InvalidState("The sandbox's instance is being deleted.")
            if seen.at is InstanceState.ERROR:
                raise SandboxFailed("Daytona could not start the sandbox.")
            if seen.at is not InstanceState.PENDING or self._clock.monotonic() + pause >= ends:
                return instance(seen)
            self._clock.sleep(pause)
            pause = min(POLL_SECONDS_MAX, pause * 1.5)
            seen = self._api.sandbox(seen.id)

    def _body(self, request: CreateRequest) -> dict[str, JsonValue]:
        body: dict[str, JsonValue] = {
            "name": sandbox_name(request.owner),
            "labels": labels(request.owner),
            "env": {**request.env},
            "public": False,
            "autoStopInterval": 0,
            "autoDeleteInterval": -1,
            "ttlMinutes": math.ceil((request.ttl_seconds + SPARE_SECONDS) / 60),
        }
        if request.egress is not None:
            body |= egress.body(request.egress)
        if self._config.target is not None:
            body["target"] = self._config.target
        if request.from_snapshot is not None:
            return body | {"snapshot": request.from_snapshot}
        if request.image is not None:
            return body | self._built(request, request.image)
        return body | ({"snapshot": self._config.snapshot} if self._config.snapshot is not None else {})

    def _built(self, request: CreateRequest, image: str) -> dict[str, JsonValue]:
        """Only here a size can be asked for: a snapshot has its own."""
        if not _IMAGE.fullmatch(image):
            raise InvalidRequest("The image is not the name of one.", field="image")
        size = request.size
        amounts = {
            "cpu": math.ceil(size.cpu_millis / 1000), "memory": math.ceil(size.memory_mib / 1024), "disk": size.disk_gib
        }  # fmt: skip
        asked: dict[str, JsonValue] = {name: amount for name, amount in amounts.items() if amount}
        return {"buildInfo": {"dockerfileContent": f"FROM {image}\n"}, **asked}
