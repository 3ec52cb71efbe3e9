"""One create: looked for before, sent once, looked for after a lost answer, and watched until commands run in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from threading import Event
from typing import Final, NoReturn

from differently_core.contract import CreateRequest, Instance, InstanceState, Owner
from differently_core.errors import (
    BackendError,
    DifferentlyError,
    InvalidState,
    NotFound,
    ProviderUnavailable,
    SandboxFailed,
)
from differently_core.runtime.clock import Clock

from ...execd import Execd
from ...waiting import Waits, begun
from . import creating, egress, snapshots
from .config import Egress, OpenSandboxConfig
from .lifecycle import CALL_SECONDS, Lifecycle
from .states import instance, phase
from .wire import SandboxRead

ANSWER_SECONDS: Final = 15.0
"""How much longer than the server's own limit for a create we wait for its answer."""
LOOK_SECONDS: Final = 5.0
"""Kept of a create's time for looking at what became of it."""


class Maker:
    """`working` gives the execd of a sandbox in which commands run: its state says more than is true."""

    def __init__(
        self, api: Lifecycle, config: OpenSandboxConfig, clock: Clock, working: Callable[[SandboxRead], Execd | None]
    ) -> None:
        self._api = api
        self._config = config
        self._clock = clock
        self._working = working
        self._stalls = creating.Stalls()
        self._underway = creating.Underway()
        self.egress_proved = config.egress in {Egress.OPEN, Egress.RULES}
        """Whether a sandbox of this pool was seen to be held by the pool's rules, if it has any."""

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        ends = self._clock.monotonic() + deadline
        with self._underway.of(request.owner) as unwanted:
            found = self._living(self._api.owned(request.owner, min(deadline, CALL_SECONDS)))
            if found is None and request.from_snapshot is not None:
                snapshots.check(self._api.snapshot_get(request.from_snapshot), request.owner.installation)
            ref = found.id if found is not None else self._make(request, ends)
            with begun():
                made = self._ready(request, ref, ends, unwanted)
            if unwanted.is_set():
                self._take_back(ref)
            return made

    def call_off(self, owner: Owner) -> None:
        """The owner's sandbox is being deleted: a create that is under way here takes back what it makes."""
        self._underway.mark(owner)

    def _take_back(self, ref: str) -> NoReturn:
        with begun():
            self._api.delete(ref)
        raise SandboxFailed("The sandbox was deleted while it was being made.", settled=True)

    def _living(self, found: Sequence[SandboxRead]) -> SandboxRead | None:
        """The oldest that is not on its way out; a create is repeated only when there is none at all."""
        if found and all(phase(seen) == "stopping" for seen in found):
            raise InvalidState("The sandbox's instance is being deleted.")
        return next((seen for seen in found if phase(seen) != "stopping"), None)

    def _make(self, request: CreateRequest, ends: float) -> str:
        body = creating.body(request, self._config)
        left = ends - self._clock.monotonic() - LOOK_SECONDS
        seconds = max(1.0, min(left, self._config.create_seconds + ANSWER_SECONDS))
        try:
            ref = self._api.create(body, seconds, tuple(request.env.values()))
        except SandboxFailed as error:
            stalled = str(error.details.get("reason", "")).endswith("POD_READY_TIMEOUT")
            raise self._failed_create(request, error, stalled) from None
        except BackendError as error:
            if error.settled:
                raise
            # The answer is lost, not the create. What exists is looked at; it is never made again here.
            found = self._look(request.owner)
            if not found:
                raise
            return found[0].id
        self._stalls.clear()
        return ref

    def _failed_create(self, request: CreateRequest, error: SandboxFailed, stalled: bool) -> BackendError:
        if not error.settled and self._look(request.owner) == []:
            error.settled = True  # the server removed what did not come up, as it says it does
        if stalled and self._stalls.add(request):
            return ProviderUnavailable(
                "OpenSandbox reports one sandbox after another as not ready in time.", settled=error.settled
            )
        return error

    def _look(self, owner: Owner) -> list[SandboxRead] | None:
        """What there is of the owner; None when that cannot be told either."""
        try:
            return self._api.owned(owner, LOOK_SECONDS)
        except DifferentlyError:
            return None

    def _ready(self, request: CreateRequest, ref: str, ends: float, unwanted: Event) -> Instance:
        """Look at it until commands run in it: "Running" is said of a container that has died at once, too."""
        waits = Waits(self._clock, ends)
        pending = Instance(ref, request.owner, InstanceState.PENDING, message="commands do not run in it yet")
        while not unwanted.is_set():
            seen = self._seen_new(ref, request)
            if seen is not None:
                made = self._observed(seen)
                if made.state is InstanceState.ERROR:
                    raise SandboxFailed(f"The sandbox failed to start: {made.message}.")
                execd = self._working(seen) if made.state is InstanceState.RUNNING else None
                if execd is not None:
                    egress.check(self._api, self._config, request.egress, ref, execd)
                    self.egress_proved = True
                    return self._extended(made, request)
            if not waits.again():
                if seen is None:
                    raise ProviderUnavailable("The sandbox was created and then was not there.")
                break
        return pending

    def _seen_new(self, ref: str, request: CreateRequest) -> SandboxRead | None:
        """It with our labels; None while reads lag behind the create, or when somebody deleted it meanwhile."""
        try:
            return self._labelled(self._api.sandbox(ref), request)
        except NotFound:
            return None

    def _labelled(self, seen: SandboxRead, request: CreateRequest) -> SandboxRead:
        """See that it carries our labels, and none that a restored one inherited from its source."""
        changes = creating.relabelling(seen, request.owner, restored=request.from_snapshot is not None)
        seen = self._api.relabel(seen.id, changes) if changes else seen
        if seen.owner != request.owner:
            raise ProviderUnavailable("OpenSandbox does not keep the labels that say whose the sandbox is.")
        return seen

    def _extended(self, made: Instance, request: CreateRequest) -> Instance:
        """A server's limit holds for the timeout of a create and not for a renewal; the rest is had at once."""
        wanted = self._clock.now() + timedelta(seconds=request.ttl_seconds)
        if made.expires_at is None or made.expires_at >= wanted:
            return made
        try:
            self._api.renew(made.ref, wanted + timedelta(seconds=creating.SPARE_SECONDS))
            return self._observed(self._api.sandbox(made.ref))
        except DifferentlyError:  # it runs all the same, and says until when
            return made

    def _observed(self, seen: SandboxRead) -> Instance:
        return instance(seen, self._config.runtime)
