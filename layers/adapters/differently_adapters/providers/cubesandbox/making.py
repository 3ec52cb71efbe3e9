"""One create: looked for before, sent once, looked for after an answer that was lost, and given its environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pydantic import JsonValue

from differently_core.contract import CreateRequest, Instance, InstanceState, Owner
from differently_core.errors import (
    BackendError,
    DifferentlyError,
    InvalidRequest,
    NotFound,
    ProviderUnavailable,
)
from differently_core.runtime.clock import Clock

from ...waiting import Waits, begun
from . import snapshots
from .api import Api
from .config import CubeSandboxConfig
from .shell import CubeShell
from .wire import SandboxRead, labels

SPARE_SECONDS: Final = 300
"""CubeSandbox's own timer ends what we forgot; it must not be faster than we are."""
Reach = Callable[[SandboxRead], CubeShell]


class Maker:
    def __init__(self, api: Api, config: CubeSandboxConfig, clock: Clock, reach: Reach) -> None:
        self._api = api
        self._config = config
        self._clock = clock
        self._reach = reach

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        waits = Waits(self._clock, self._clock.monotonic() + deadline)
        found = self._api.owned(request.owner)
        if not found and request.from_snapshot is not None:
            snapshots.check(self._api, request.from_snapshot, request.owner.installation)
        ref = found[0].sandbox_id if found else self._sent(request, deadline)
        with begun():
            return self._ready(request, ref, waits)

    def _sent(self, request: CreateRequest, deadline: float) -> str:
        try:
            ref = self._api.create(self._body(request), deadline)
        except InvalidRequest:
            if request.from_snapshot is not None and snapshots.find(self._api, request.from_snapshot) is None:
                raise NotFound("The snapshot does not exist at CubeSandbox.", missing="snapshot") from None
            raise
        except BackendError as error:
            if error.settled:
                raise
            return self._after_lost_create(request.owner, error)
        with begun():
            return self._only_one(request.owner, ref)

    def _after_lost_create(self, owner: Owner, error: BackendError) -> str:
        """What came of it, if anything can be seen; it is never asked for again here."""
        try:
            found = self._api.owned(owner)
        except DifferentlyError:
            raise error from None
        if found:
            return found[0].sandbox_id
        # What the scheduler answered with a code of its own is over; what was not answered may still make a sandbox.
        error.settled = "reason" in error.details
        raise error

    def _only_one(self, owner: Owner, made: str) -> str:
        """Another create of the same sandbox may have come to light meanwhile: the older one stays."""
        found = self._api.owned(owner)
        for extra in found[1:]:
            self._api.delete(extra.sandbox_id)
        return found[0].sandbox_id if found else made

    def _ready(self, request: CreateRequest, ref: str, waits: Waits) -> Instance:
        seen = self._api.sandbox(ref)
        while seen.at is InstanceState.PENDING and waits.again():
            seen = self._api.sandbox(ref)
        if seen.owner != request.owner:
            raise ProviderUnavailable("CubeSandbox does not keep the metadata that says whose the sandbox is.")
        if seen.at is InstanceState.RUNNING:
            self._reach(seen).store_env(request.env)
        return seen.instance()

    def _body(self, request: CreateRequest) -> dict[str, JsonValue]:
        """Without the environment, which is stored in the sandbox: some releases take it and do not apply it.

        Metadata is ours alone, for some of its keys mount folders of the host. What is paused on purpose is deleted at
        the timeout, unless the timeout pauses.
        """
        return {
            "templateID": request.from_snapshot or request.image or self._config.template,
            "timeout": request.ttl_seconds + SPARE_SECONDS,
            "metadata": labels(request.owner),
            "lifecycle": {"onTimeout": "pause", "autoResume": False},
        }
