"""One create: looked for before, sent once under a name that is unique in the project, and looked for afterwards."""

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
from . import egress
from .api import Api
from .config import VercelConfig
from .wire import SandboxRead, instance, tags

SPARE_SECONDS: Final = 300
"""Vercel's own timer stops what we forgot; it must not be faster than we are."""
MIB_OF_VCPU: Final = 2_048
LOOK_SECONDS: Final = 0.5


class Maker:
    def __init__(self, api: Api, config: VercelConfig, clock: Clock) -> None:
        self._api = api
        self._config = config
        self._clock = clock

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        if request.from_snapshot is not None:
            raise NotFound("A Vercel pool has no snapshots.")
        ends = self._clock.monotonic() + deadline
        seen = self._existing(request) or self._sent(request, deadline)
        try:
            return self._ready(request, seen, ends)
        except BackendError as error:
            error.settled = False  # the sandbox exists
            raise

    def _existing(self, request: CreateRequest) -> SandboxRead | None:
        try:
            seen = self._api.sandbox(sandbox_name(request.owner))
        except NotFound:
            return None
        if seen.owner != request.owner:
            raise InvalidState("The sandbox's name is taken at Vercel by somebody else's.")
        return seen

    def _sent(self, request: CreateRequest, seconds: float) -> SandboxRead:
        try:
            return self._api.create(self._body(request), seconds)
        except (InvalidState, InvalidRequest, BackendError) as error:
            if request.env:  # which a refusal may quote
                error.details.pop("provider_message", None)
            if isinstance(error, BackendError) and error.settled:
                raise
            # Which status a name that is taken has is not published, and a lost answer looks the same from here.
            found = self._found(request)
            if found is None:
                raise
            return found

    def _found(self, request: CreateRequest) -> SandboxRead | None:
        try:
            return self._existing(request)
        except DifferentlyError:
            return None

    def _ready(self, request: CreateRequest, seen: SandboxRead, ends: float) -> Instance:
        while True:
            if seen.owner != request.owner:
                raise SandboxFailed("Vercel does not keep the tags that say whose the sandbox is.")
            if seen.at is InstanceState.ERROR:
                raise SandboxFailed("Vercel could not start the sandbox.")
            if seen.at is not InstanceState.PENDING or self._clock.monotonic() + LOOK_SECONDS >= ends:
                return instance(seen)
            self._clock.sleep(LOOK_SECONDS)
            seen = self._api.sandbox(seen.name)

    def _body(self, request: CreateRequest) -> dict[str, JsonValue]:
        size = request.size
        vcpus = max(1, math.ceil(size.cpu_millis / 1000), math.ceil(size.memory_mib / MIB_OF_VCPU))
        timeout = min(request.ttl_seconds + SPARE_SECONDS, self._config.timeout_seconds_max)
        body: dict[str, JsonValue] = {
            "name": sandbox_name(request.owner),
            "tags": tags(request.owner),
            "env": {**request.env},
            "timeout": timeout * 1000,
            "resources": {"vcpus": vcpus},
            "persistent": True,
            "ports": [*self._config.ports],
        }
        if request.egress is not None:
            body["networkPolicy"] = egress.policy(request.egress)
        image = request.image or self._config.image
        if image is not None:
            body["image"] = image
        if self._config.region is not None:
            body["region"] = self._config.region
        return body
