"""One create: looked for before, sent once under a name that is unique in the project, and watched until it runs."""

from __future__ import annotations

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
from ...waiting import Waits, begun
from .api import Api
from .config import NorthflankConfig
from .wire import ServiceRead, description

ANSWER_SECONDS: Final = 60.0


class Maker:
    def __init__(self, api: Api, config: NorthflankConfig, clock: Clock) -> None:
        self._api = api
        self._config = config
        self._clock = clock

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        if request.from_snapshot is not None:
            raise NotFound("A Northflank pool has no snapshots.")
        body = self._body(request)
        waits = Waits(self._clock, self._clock.monotonic() + deadline)
        name = sandbox_name(request.owner)
        seen = self._found(name) or self._sent(name, request, body, min(deadline, ANSWER_SECONDS))
        with begun():
            return self._ready(name, request, seen, waits)

    def _found(self, name: str) -> ServiceRead | None:
        try:
            return self._api.service(name)
        except NotFound:
            return None

    def _sent(self, name: str, request: CreateRequest, body: JsonValue, seconds: float) -> ServiceRead:
        """A refusal may say in any words that the name is taken, and an answer may be lost: both are looked after."""
        try:
            return self._api.create(body, seconds, tuple(request.env.values()))
        except (InvalidState, InvalidRequest, BackendError) as error:
            if isinstance(error, BackendError) and error.settled:
                raise
            try:
                found = self._found(name)
            except DifferentlyError:
                found = None
            if found is None:
                raise
            return found

    def _ready(self, name: str, request: CreateRequest, seen: ServiceRead, waits: Waits) -> Instance:
        if seen.id != name:
            raise SandboxFailed("Northflank made a service under another id than its name says.")
        while True:
            with begun():
                seen = self._looked_at(name)
            if seen.owner != request.owner:
                raise InvalidState("The name of the sandbox's service is taken by another one.")
            match seen.at:
                case InstanceState.ERROR:
                    raise SandboxFailed("Northflank could not start the service.")
                case InstanceState.STOPPED:
                    raise SandboxFailed("The service was paused while it was being made.")
                case InstanceState.PENDING if waits.again():
                    continue
                case _:
                    return seen.instance()

    def _looked_at(self, name: str) -> ServiceRead:
        try:
            return self._api.service(name)
        except NotFound:
            pass
        raise SandboxFailed("The service was deleted before it ran.")

    def _body(self, request: CreateRequest) -> dict[str, JsonValue]:
        image = request.image or self._config.image
        if image is None:
            raise InvalidRequest(
                "No image: neither the sandbox, nor its template, nor the pool names one.", field="image"
            )
        deployment: dict[str, JsonValue] = {
            "instances": 1,
            "external": {"imagePath": image},
            "docker": {"configType": "customCommand", "customCommand": self._config.command},
        }
        if self._config.ephemeral_storage_mib is not None:
            deployment["storage"] = {"ephemeralStorage": {"storageSize": self._config.ephemeral_storage_mib}}
        return {
            "name": sandbox_name(request.owner),
            "description": description(request.owner),
            "billing": {"deploymentPlan": self._config.plan_for(request.size).name},
            "deployment": deployment,
            "runtimeEnvironment": {**request.env},
        }
