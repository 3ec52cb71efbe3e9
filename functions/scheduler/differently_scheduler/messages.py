"""What the entry points are sent. A message carries ids only: what to do is decided from the record when it arrives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from differently_core.model.port import PORT_MAX
from differently_core.runtime.ids import SandboxId, SnapshotId, WebhookId

M = TypeVar("M")
SANDBOX_PATTERN = r"^sbx_[0-9A-Z]{26}$"
SNAPSHOT_PATTERN = r"^snap_[0-9A-Z]{26}$"
WEBHOOK_PATTERN = r"^whk_[0-9A-Z]{26}$"
TENANT_PATTERN = r"^(org|proj)_[0-9A-Z]{26}$"
SWEEP_SECONDS_MAX = 600


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def event(self) -> dict[str, Any]:
        """As the entry point receives it."""
        return self.model_dump(mode="json")


SandboxField = Annotated[SandboxId, Field(pattern=SANDBOX_PATTERN)]


class Step(Message):
    """Do what is due for one sandbox."""

    kind: Literal["step"] = "step"
    sandbox: SandboxField


class Cleanup(Message):
    """Settle the debt of one attempt."""

    kind: Literal["cleanup"] = "cleanup"
    sandbox: SandboxField
    attempt: Annotated[int, Field(ge=1)]


class Settle(Message):
    """One look of the workflow `wait` at a sandbox that is on its way somewhere, and when it comes again."""

    kind: Literal["settle"] = "settle"
    sandbox: SandboxField
    generation: Annotated[int, Field(ge=1)]


class LookAtPort(Message):
    """Take one port back, if it is not wanted any more."""

    kind: Literal["port"] = "port"
    sandbox: SandboxField
    port: Annotated[int, Field(ge=1, le=PORT_MAX)]


class StepSnapshot(Message):
    """Do what is due for one snapshot."""

    kind: Literal["snapshot"] = "snapshot"
    snapshot: Annotated[SnapshotId, Field(pattern=SNAPSHOT_PATTERN)]


class Close(Message):
    """Go on removing what an organization or project holds."""

    kind: Literal["closing"] = "closing"
    tenant: Annotated[str, Field(pattern=TENANT_PATTERN)]


class Dispatch(Message):
    """Look at the queue. It names nobody: one run serves any number of these."""

    kind: Literal["dispatch"] = "dispatch"


class Deliver(Message):
    """Serve what is on its way to one webhook."""

    kind: Literal["deliver"] = "deliver"
    webhook: Annotated[WebhookId, Field(pattern=WEBHOOK_PATTERN)]


class Sweep(Message):
    """Nudge what is due, for up to `seconds`, as long as something is or soon will be; 0 looks once."""

    kind: Literal["sweep"] = "sweep"
    seconds: Annotated[float, Field(ge=0, le=SWEEP_SECONDS_MAX)] = 0


class Probe(Message):
    """Look at every pool."""

    kind: Literal["probe"] = "probe"


class Passes(Message):
    """Have every pool reconciled, each by a message of its own."""

    kind: Literal["passes"] = "passes"


Work = Step | Cleanup | LookAtPort | StepSnapshot | Close | Settle
WORK: TypeAdapter[Work] = TypeAdapter(Annotated[Work, Field(discriminator="kind")])


class Account(Message):
    """Look at budgets, and add up what was used."""

    kind: Literal["account"] = "account"


TICK: TypeAdapter[Sweep | Probe | Passes | Account] = TypeAdapter(
    Annotated[Sweep | Probe | Passes | Account, Field(discriminator="kind")]
)


class Poison(ValueError):
    """A message that no delivery can make right. Its text names the field and the rule, never the value."""


def read(adapter: TypeAdapter[M], event: object) -> M:
    if not isinstance(event, Mapping) or "kind" not in event:
        raise Poison("kind: missing")
    try:
        return adapter.validate_python(dict(event))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    raise Poison(f"{'.'.join(str(part) for part in first['loc']) or 'message'}: {first['type']}")
