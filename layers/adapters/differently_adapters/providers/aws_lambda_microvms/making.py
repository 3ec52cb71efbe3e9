"""One create: sent once under a token that is the sandbox's own, then watched until the agent inside answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from pydantic import JsonValue

from differently_core.contract import CreateRequest, Instance, InstanceState, Owner
from differently_core.errors import InvalidRequest, InvalidState, NotFound, SandboxFailed
from differently_core.runtime.clock import Clock

from ...waiting import Waits, begun
from .api import Api
from .config import LambdaMicrovmConfig
from .guests import Guests
from .wire import ENDING, Microvm

CREATE_SECONDS: Final = 60.0
PAYLOAD_CHARACTERS_MAX: Final = 4_096
LIVES_MAX: Final = 16
"""How often one sandbox may be made anew after its MicroVM has ended."""


class Maker:
    """`find` looks for a MicroVM whose agent says that it works for the owner."""

    def __init__(
        self,
        api: Api,
        guests: Guests,
        config: LambdaMicrovmConfig,
        clock: Clock,
        find: Callable[[Owner], Microvm | None],
    ) -> None:
        self._api = api
        self._guests = guests
        self._config = config
        self._clock = clock
        self._find = find

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        ends = self._clock.monotonic() + deadline
        body = self._body(request)
        seen = self._run(request, body, deadline)
        with begun():
            return self._ready(request.owner, seen, ends)

    def _run(self, request: CreateRequest, body: dict[str, JsonValue], deadline: float) -> Microvm:
        """AWS answers a token that it knows with the MicroVM made for it, also when that one has ended. Then the next
        of the sandbox's tokens is due, so that a repetition walks the same way and finds the one that lives.
        """
        seconds = min(deadline, CREATE_SECONDS)
        for life in range(1, LIVES_MAX + 1):
            token = f"{request.owner.installation}.{request.owner.sandbox}.{life}"
            try:
                seen = self._api.run({**body, "clientToken": token}, seconds, tuple(request.env.values()))
            except InvalidState:
                return self._made_otherwise(request.owner)
            if seen.state not in ENDING:
                return seen
        raise SandboxFailed("The sandbox's MicroVM has ended too often.", settled=True)

    def _made_otherwise(self, owner: Owner) -> Microvm:
        """The token was used with another body (the pool's configuration changed, say): the first one is kept."""
        found = self._find(owner)
        if found is None:
            raise InvalidState("The sandbox's MicroVM was asked for in another way before, and is not there.")
        return found

    def _ready(self, owner: Owner, seen: Microvm, ends: float) -> Instance:
        """What AWS says of the state lags behind; the agent's answer is what counts."""
        waits = Waits(self._clock, ends)
        while True:
            if seen.state in ENDING:
                raise SandboxFailed(f"The MicroVM ended: {seen.state_reason or 'no reason is given'}.")
            if self._guests.works_for(seen, owner) is not None:
                return self._seen_running(seen, owner)
            if not waits.again():
                made = seen.instance(owner, self._config.lifetime_seconds)
                return Instance(
                    made.ref, owner, InstanceState.PENDING, message="its agent does not answer yet",
                    expires_at=made.expires_at,
                )  # fmt: skip
            seen = self._again(seen)

    def _again(self, seen: Microvm) -> Microvm:
        try:
            return self._api.look(seen.microvm_id)
        except NotFound:  # not yet: one that has ended is told for a while, with its reason
            return seen

    def _seen_running(self, seen: Microvm, owner: Owner) -> Instance:
        running = seen.model_copy(update={"state": "RUNNING"})
        return running.instance(owner, self._config.lifetime_seconds)

    def _body(self, request: CreateRequest) -> dict[str, JsonValue]:
        """What goes with every create of this sandbox: the same each time, or AWS takes it for another request."""
        config = self._config
        self._check(request)
        told: dict[str, JsonValue] = {
            "installation": request.owner.installation, "sandbox": request.owner.sandbox, "env": {**request.env}
        }  # fmt: skip
        payload = json.dumps(told, separators=(",", ":"), sort_keys=True)
        if len(payload) > PAYLOAD_CHARACTERS_MAX:
            raise InvalidRequest(
                f"The environment is too long: with what we add it has {len(payload)} of the {PAYLOAD_CHARACTERS_MAX} "
                "characters that AWS hands to a MicroVM. Give it with each command, or in a file.", field="env",
            )  # fmt: skip
        seconds = config.lifetime_seconds
        body: dict[str, JsonValue] = {
            "imageIdentifier": config.image_arn, "runHookPayload": payload, "maximumDurationInSeconds": seconds,
            # AWS measures idleness by traffic at the endpoint, which a job in the background has none of: pauses are
            # ours to order, and nothing is woken by a stray request.
            "idlePolicy": {
                "maxIdleDurationSeconds": seconds, "suspendedDurationSeconds": seconds, "autoResumeEnabled": False
            },
            "ingressNetworkConnectors": [*config.ingress], "egressNetworkConnectors": [*config.egress_connectors],
            "logging": {"cloudWatch": {"logGroup": config.log_group}} if config.log_group else {"disabled": {}},
        }  # fmt: skip
        more = {
            "imageVersion": config.image_version, "executionRoleArn": config.execution_role_arn,
            "kmsKeyIdentifier": config.kms_key,
        }  # fmt: skip
        return body | {name: value for name, value in more.items() if value is not None}

    def _check(self, request: CreateRequest) -> None:
        config = self._config
        if request.from_snapshot is not None:
            raise InvalidRequest("Lambda MicroVMs are made from an image, not from snapshots.")
        if request.image not in (None, config.image_arn):
            raise InvalidRequest("This pool makes every sandbox from its own image; name none.", field="image")
        if request.ttl_seconds > config.lifetime_seconds:
            raise InvalidRequest(
                f"A sandbox of this pool lives for at most {config.lifetime_seconds} seconds.", field="ttlSeconds"
            )
        if request.size.memory_mib > config.memory_mib:
            raise InvalidRequest(f"A sandbox of this pool has {config.memory_mib} MiB.", field="resources.memoryMiB")
