"""One create: looked for before, sent once under an idempotency key, and looked for after an answer that was lost."""

from __future__ import annotations

import hashlib
from typing import Final

from pydantic import JsonValue

from differently_core.contract import CreateRequest, Instance
from differently_core.errors import BackendError, DifferentlyError, InvalidRequest, NotFound, ProviderUnavailable
from differently_core.runtime.clock import Clock

from . import egress, snapshots
from .api import Api
from .config import E2bConfig
from .wire import SandboxRead, instance, labels

SPARE_SECONDS: Final = 300
"""E2B's own timer ends what we forgot; it must not be faster than we are."""
KEYS_MAX: Final = 3
LOOK_SECONDS: Final = 0.5
WAIT_SECONDS_MAX: Final = 20.0
"""For the outcome of another create under the same key."""


class Maker:
    def __init__(self, api: Api, config: E2bConfig, clock: Clock) -> None:
        self._api = api
        self._config = config
        self._clock = clock

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        ends = self._clock.monotonic() + deadline
        found = self._api.owned(request.owner)
        if found:
            return instance(found[0])
        if request.from_snapshot is not None:
            snapshots.check(self._api, request.from_snapshot, request.owner.installation)
        return instance(self._made(request, ends))

    def _made(self, request: CreateRequest, ends: float) -> SandboxRead:
        """A key that was used for a sandbox which is gone answers with that one for a while; then the next key is
        taken, by every caller alike."""
        body = self._body(request)
        for number in range(KEYS_MAX):
            ref = self._sent(request, body, _key(request, number), ends)
            try:
                seen = self._api.sandbox(ref)
            except NotFound:
                continue
            except BackendError as error:
                error.settled = False  # the look failed, the create did not
                raise
            if seen.owner != request.owner:
                raise ProviderUnavailable("E2B answered with a sandbox of another owner.")
            return seen
        raise ProviderUnavailable("E2B made the sandbox, and it was not there.")

    def _asked(self, request: CreateRequest, body: JsonValue, key: str, ends: float) -> str:
        try:
            return self._api.create(body, key, max(1.0, ends - self._clock.monotonic()))
        except DifferentlyError as error:
            if request.env:  # which a refusal may quote
                error.details.pop("provider_message", None)
            raise

    def _sent(self, request: CreateRequest, body: JsonValue, key: str, ends: float) -> str:
        try:
            return self._asked(request, body, key, ends)
        except InvalidRequest:
            if request.from_snapshot is not None and self._is_gone(request.from_snapshot):
                raise NotFound("The snapshot does not exist at E2B.") from None
            raise
        except BackendError as error:
            if error.settled:
                raise
            answered = "status" in error.details
            found = self._waited_for(request, error, ends)
            if found is None:
                # What was answered is over; what was not may still make a sandbox.
                error.settled = answered and not str(error.details.get("reason", "")).startswith("idempotency")
                raise
            return found

    def _waited_for(self, request: CreateRequest, error: BackendError, ends: float) -> str | None:
        """What exists is looked for, and waited for only while another create under the key is under way."""
        under_way = error.details.get("reason") == "idempotency_in_progress"
        until = min(ends, self._clock.monotonic() + WAIT_SECONDS_MAX)
        while True:
            try:
                found = self._api.owned(request.owner)
            except DifferentlyError:
                raise error from None
            if found:
                return found[0].sandbox_id
            if not under_way or self._clock.monotonic() + LOOK_SECONDS > until:
                return None
            self._clock.sleep(LOOK_SECONDS)

    def _is_gone(self, snapshot: str) -> bool:
        return not self._api.snapshots_named(snapshot)

    def _body(self, request: CreateRequest) -> dict[str, JsonValue]:
        timeout = min(request.ttl_seconds + SPARE_SECONDS, self._config.timeout_seconds_max)
        body: dict[str, JsonValue] = {
            "templateID": request.from_snapshot or request.image or self._config.template,
            "timeout": timeout,
            "metadata": labels(request.owner),
            "envVars": {**request.env},
            "autoPause": False,
            "network": {
                "allowPublicTraffic": self._config.public_ports,
                **(egress.body(request.egress) if request.egress is not None else {}),
            },
        }
        return body


def _key(request: CreateRequest, number: int) -> str:
    """Equal for equal owners; 64 characters of those that E2B permits."""
    told = f"{request.owner.installation}\0{request.owner.sandbox}\0{number}"
    return hashlib.sha256(told.encode()).hexdigest()
