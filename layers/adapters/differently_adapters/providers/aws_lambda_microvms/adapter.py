"""The Lambda MicroVM adapter: the contract's operations over AWS's API and the execd that is baked into the image.

A ref is AWS's own id, which came with its answer to a create of ours under the sandbox's own token. The agent's word on
whose a MicroVM is can take one away from a caller, and finds one whose ref was lost; it never overrules the ref of one
that cannot be asked because it is paused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from differently_core.contract import (
    SUPPORTED,
    AdapterContext,
    Capabilities,
    Capacity,
    Catalog,
    CreateRequest,
    Declaration,
    Info,
    Instance,
    Instances,
    InstanceState,
    NotOffered,
    Observations,
    Operation,
    Owner,
    Progress,
    Target,
    Transition,
    Transitioned,
    Unsupported,
)
from differently_core.errors import (
    BackendError,
    DifferentlyError,
    InvalidState,
    NotFound,
    ProviderUnavailable,
    SandboxFailed,
)
from differently_core.model import features

from ...execd import Execd, ThroughExecd
from ...observing import each_observed
from ...waiting import Waits, begun, ordered_once
from .api import Api
from .config import LIFETIME_SECONDS_MAX, LambdaMicrovmConfig
from .guests import Guests
from .making import CREATE_SECONDS, Maker
from .wire import ENDING, Image, Microvm

SETTLES_SECONDS: Final = 120.0
SPARE_SECONDS: Final = 30.0
TAG_INSTALLATION: Final = "differently-installation"
"""Of the image: whose MicroVMs it makes."""


class LambdaMicrovmAdapter(ThroughExecd, NotOffered):
    kind: ClassVar[str] = "aws-lambda-microvms"
    operations: ClassVar[Declaration] = {
        **dict.fromkeys(Operation, SUPPORTED),
        Operation.RENEW: Unsupported("its_end_is_fixed_at_the_create"),
        Operation.STOP: Unsupported("a_pause_keeps_the_disk_too"),
        Operation.START: Unsupported("a_pause_keeps_the_disk_too"),
        Operation.CALL_OFF: Unsupported("a_suspension_cannot_be_called_off"),
        Operation.SNAPSHOT: Unsupported("no_snapshots"),
        Operation.SNAPSHOT_GET: Unsupported("no_snapshots"),
        Operation.SNAPSHOT_DELETE: Unsupported("no_snapshots"),
        Operation.PORT_EXPOSE: Unsupported("endpoints_want_a_header"),
        Operation.PORT_REVOKE: Unsupported("endpoints_want_a_header"),
        Operation.EGRESS_SET: Unsupported("egress_is_set_for_the_pool"),
    }

    def __init__(self, context: AdapterContext) -> None:
        if not isinstance(context.config, LambdaMicrovmConfig):
            raise TypeError("an aws-lambda-microvms adapter needs a LambdaMicrovmConfig")
        self._config = context.config
        self._pool = context.pool
        self._installation = context.installation
        self._clock = context.clock
        self._api = Api(self._config, context.credential, context.clock, context.untold)
        self._guests = Guests(self._api, self._config, context.clock)
        self._maker = Maker(self._api, self._guests, self._config, context.clock, self._first)
        self._untagged = False

    # The pool.

    def info(self) -> Info:
        return Info(
            kind=self.kind, version="2025-09-09", trust=None, isolation="microvm", idempotent_create=True,
            settles_seconds=SETTLES_SECONDS, create_seconds=CREATE_SECONDS + SPARE_SECONDS,
            description=f"AWS Lambda MicroVMs in {self._config.region}.", backend=self._config.image_arn,
            warnings=self._warnings(),
        )  # fmt: skip

    def _warnings(self) -> tuple[str, ...]:
        if not self._untagged:
            return ()
        return (
            f"The pool's image has no tag {TAG_INSTALLATION}: were another installation to use it too, its MicroVMs "
            "could not be told apart while they are paused.",
        )

    def capabilities(self) -> Capabilities:
        return Capabilities(
            features=frozenset(
                {
                    features.EXEC, features.EXEC_STREAM, features.FILES, features.PAUSE_RESUME, "isolation.microvm",
                    f"arch.{self._config.architecture}",
                }
            ),
            max_memory_mib=self._config.memory_mib,
            regions=(self._config.region,),
            max_lifetime_seconds=min(self._config.lifetime_seconds, LIFETIME_SECONDS_MAX),
        )  # fmt: skip

    def capacity(self) -> Capacity:
        """AWS tells no room; the account's quotas and the pool's own limit govern."""
        return Capacity(bounded=False)

    def health(self) -> None:
        image = self._image()
        if image.latest_active_image_version is None:
            raise ProviderUnavailable(f"The pool's image has no active version; it is {image.state}.", settled=True)

    def verify_credential(self) -> None:
        self._image()

    def _image(self) -> Image:
        try:
            image = self._api.image()
        except BackendError:
            raise
        except DifferentlyError as error:
            raise ProviderUnavailable("The pool's image does not exist.", settled=True, **error.details) from None
        whose = (image.tags or {}).get(TAG_INSTALLATION)
        self._untagged = whose is None
        if whose not in (None, self._installation):
            raise ProviderUnavailable("The pool's image is tagged as another installation's.", settled=True)
        return image

    def discover(self) -> Catalog:
        """Images of the account, by their ARN."""
        return Catalog(templates={image.image_arn: image.name for image in self._api.images()})

    # Lifecycle.

    def create(self, request: CreateRequest, deadline: float) -> Instance:
        return self._maker.create(request, deadline)

    def get(self, target: Target) -> Instance:
        return self._instance(self._find(target), target.owner)

    def list(self, installation: str) -> Instances:
        """One that nobody inside can be asked of is told with no sandbox: nothing is concluded from it."""
        told = [(seen, self._guests.owner(seen) or Owner(installation, "")) for seen in self._api.all()]
        return [self._instance(seen, owner) for seen, owner in told if owner.installation == installation]

    def observe_many(self, targets: Sequence[Target]) -> Observations:
        return each_observed(self.get, targets)

    def delete(self, target: Target) -> None:
        if target.ref is None:
            for seen in self._owned(target.owner):
                self._terminate(seen.microvm_id)
            return
        try:
            seen = self._api.get(target.ref)
        except NotFound:
            return
        self._check(seen, target)
        if seen.state not in ENDING:
            self._terminate(target.ref)

    def _terminate(self, ref: str) -> None:
        self._api.terminate(ref)
        self._guests.forget(ref)

    # Pause and resume: accepted at once, and then watched.

    def pause(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        waits = Waits(self._clock, self._clock.monotonic() + deadline)
        seen = self._incarnation(target, transition)
        if transition.observe_only or seen.state != "RUNNING":
            return self._transitioned(seen, target.owner, InstanceState.PAUSED)
        ordered_once(lambda: self._api.suspend(seen.microvm_id))
        moved = False
        while waits.again():
            with begun():
                seen = self._find(Target(target.owner, seen.microvm_id))
            moved = moved or seen.state == "SUSPENDING"
            if seen.state == "SUSPENDED" or seen.state in ENDING or (moved and seen.state == "RUNNING"):
                return self._transitioned(seen, target.owner, InstanceState.PAUSED)
        return Transitioned(Progress.UNDERWAY, self._instance(seen, target.owner))

    def resume(self, target: Target, transition: Transition, deadline: float) -> Transitioned:
        waits = Waits(self._clock, self._clock.monotonic() + deadline)
        seen = self._incarnation(target, transition)
        if transition.observe_only:
            return self._transitioned(seen, target.owner, InstanceState.RUNNING)
        if seen.state == "SUSPENDING":
            raise InvalidState("The MicroVM is being suspended; it can be resumed once it is.")
        if seen.state == "SUSPENDED":
            ordered_once(lambda: self._api.resume(seen.microvm_id))
        while True:
            with begun():
                seen = self._resumed(target.owner, seen)
                if seen.state == "RUNNING" and self._guests.works_for(seen, target.owner) is not None:
                    return Transitioned(Progress.DONE, self._instance(seen, target.owner))
            if not waits.again():
                return Transitioned(Progress.UNDERWAY, self._instance(seen, target.owner))

    def _resumed(self, owner: Owner, seen: Microvm) -> Microvm:
        """As it is now. One that turns out to be another's, now that it can be asked, is put to sleep again."""
        seen = self._api.get(seen.microvm_id)
        if seen.state in ENDING:
            raise SandboxFailed("The MicroVM ended instead of going on.")
        target = Target(owner, seen.microvm_id)
        if self._guests.owner(seen) not in (None, owner):
            ordered_once(lambda: self._api.suspend(seen.microvm_id))
            raise _missing(target)
        return seen

    def _incarnation(self, target: Target, transition: Transition) -> Microvm:
        seen = self._find(target)
        if transition.incarnation and self._instance(seen, target.owner).incarnation != transition.incarnation:
            raise InvalidState("The instance is another one than the named incarnation.")
        return seen

    def _transitioned(self, seen: Microvm, owner: Owner, wanted: InstanceState) -> Transitioned:
        made = self._instance(seen, owner)
        if made.state is wanted:
            return Transitioned(Progress.DONE, made)
        progress = Progress.UNDERWAY if made.state is InstanceState.PENDING else Progress.FAILED
        return Transitioned(progress, made, made.message)

    # What there is not.

    def close(self) -> None:
        self._api.http.close()

    # One MicroVM.

    def _reach(self, target: Target) -> Execd:
        seen = self._find(target)
        state = self._instance(seen, target.owner).state
        if state is not InstanceState.RUNNING:
            raise InvalidState(f"The sandbox is {state}.")
        return self._guests.execd(seen)

    def _find(self, target: Target) -> Microvm:
        """As it is now, checked for its owner; without a ref the one that lives, before one that is ending."""
        if target.ref is not None:
            seen = self._api.get(target.ref)
            self._check(seen, target)
            return seen
        found = self._first(target.owner)
        if found is None:
            raise _missing(target)
        return found

    def _first(self, owner: Owner) -> Microvm | None:
        found = self._owned(owner)
        if not found:
            return None
        return self._api.get(min(found, key=lambda seen: (seen.state in ENDING, seen.started_at)).microvm_id)

    def _owned(self, owner: Owner) -> Sequence[Microvm]:
        return [seen for seen in self._api.all() if self._guests.owner(seen) == owner]

    def _check(self, seen: Microvm, target: Target) -> None:
        if self._guests.owner(seen) not in (None, target.owner):
            raise _missing(target)

    def _instance(self, seen: Microvm, owner: Owner) -> Instance:
        return seen.instance(owner, self._config.lifetime_seconds)


def _missing(target: Target) -> NotFound:
    return NotFound(f"Sandbox {target.owner.sandbox} has no MicroVM.")
