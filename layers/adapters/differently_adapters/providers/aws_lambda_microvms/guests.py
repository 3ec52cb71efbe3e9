"""The agent inside each MicroVM: how it is reached, and whom it says that it works for.

AWS keeps no name on a MicroVM. What a create said of its owner was handed to the agent's run hook, which wrote it down;
that is read back here, once, and remembered. A paused MicroVM cannot be asked, and is not woken for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from differently_core.contract import Owner
from differently_core.errors import DifferentlyError, InvalidRequest, ProviderUnavailable
from differently_core.runtime.clock import Clock

from ...execd import PORT, Execd, Files, Place, explain
from ...http import Call, Http, parse_endpoint
from ...recent import Recent
from .api import PROXY_TOKEN, TOKEN_MINUTES, Api
from .config import LambdaMicrovmConfig
from .wire import Guest, Microvm

OWNER_PATH: Final = "/run/differently/owner.json"
OWNER_BYTES_MAX: Final = 4_096
REMEMBERED_MAX: Final = 4_096
PROXY_PORT: Final = "X-aws-proxy-port"
SPARE_SECONDS: Final = 300.0
"""A token is not used for the last minutes of its life: a command begun with it must not outlive it at once."""


class Guests:
    def __init__(self, api: Api, config: LambdaMicrovmConfig, clock: Clock) -> None:
        self._api = api
        self._config = config
        self._clock = clock
        self._owners: Recent[Owner] = Recent(REMEMBERED_MAX)
        self._places: Recent[Place] = Recent(REMEMBERED_MAX)
        self._doors: Recent[tuple[Http, float]] = Recent(REMEMBERED_MAX)

    def owner(self, seen: Microvm) -> Owner | None:
        """None while nobody inside can be asked."""
        known = self._owners.get(seen.microvm_id)
        if known is None and seen.state in {"PENDING", "RUNNING"}:  # what AWS says of the state lags behind
            known = self._asked(seen)
        if known is not None:
            self._owners.put(seen.microvm_id, known)
        return known

    def _asked(self, seen: Microvm) -> Owner | None:
        try:
            execd = self.execd(seen if seen.endpoint else self._api.get(seen.microvm_id))
            execd.ping()
            content = Files(execd).read(OWNER_PATH)
            if content.size > OWNER_BYTES_MAX:
                return None
            told = Guest.model_validate_json(b"".join(content.chunks))
        except (DifferentlyError, ValueError):  # the second: it is not what a hook of ours writes
            return None
        return Owner(told.installation, told.sandbox)

    def works_for(self, seen: Microvm, owner: Owner) -> Execd | None:
        """Its execd, if commands run in it and it says that it is the owner's; None while it is not ready.

        Raises `ProviderUnavailable` when it says that it is somebody else's.
        """
        try:
            execd = self.execd(seen)
            self._places.put(seen.microvm_id, execd.place())
        except DifferentlyError:
            return None
        told = self.owner(seen)
        if told is None:
            return None
        if told != owner:
            raise ProviderUnavailable("The agent in the MicroVM works for another sandbox than was asked for.")
        return execd

    def execd(self, seen: Microvm) -> Execd:
        return Execd(self._door(seen), self._clock, self._places.get(seen.microvm_id))

    def _door(self, seen: Microvm) -> Http:
        """The way to its execd, with a token that lasts for a while."""
        known = self._doors.get(seen.microvm_id)
        now = self._clock.monotonic()
        if known is not None and now < known[1]:
            return known[0]
        made = self._opened(seen)
        self._doors.put(seen.microvm_id, (made, now + TOKEN_MINUTES * 60 - SPARE_SECONDS))
        return made

    def _opened(self, seen: Microvm) -> Http:
        ref = seen.microvm_id

        def explained(call: Call, status: int, headers: Mapping[str, str], body: JsonValue) -> DifferentlyError | None:
            if status in {401, 403}:  # the token is of no use any more: the next call has a new one
                self._doors.forget(ref)
            return explain(call, status, headers, body)

        try:
            endpoint = parse_endpoint(f"{self._config.microvm_scheme}://{seen.endpoint}", self._config.rules())
        except InvalidRequest as error:
            why = error.message.partition(": ")[2]
        else:
            token = self._api.token(ref, PORT)
            headers = {PROXY_TOKEN: token, PROXY_PORT: str(PORT)}
            return self._api.http.at(endpoint, headers, explain=explained, secrets=[token])
        raise ProviderUnavailable(f"AWS tells an endpoint that this pool may not use: {why}", settled=True)

    def forget(self, ref: str) -> None:
        for kept in (self._owners, self._places, self._doors):
            kept.forget(ref)
