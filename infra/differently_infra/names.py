"""Names that are known before anything is made, so that stacks refer to each other's parts without waiting for them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Names:
    """`installation` is the configuration's name, `stacks` the same as stack names begin."""

    installation: str
    stacks: str

    def function(self, name: str) -> str:
        return f"{self.installation}-{name}"

    def role(self, name: str, region: str) -> str:
        """Roles are of the account, functions of a Region: two Regions may hold one installation each."""
        return f"{self.installation}-{name}-{region}"

    def stack(self, part: str) -> str:
        return f"{self.stacks}-{part}"

    @property
    def queue(self) -> str:
        return f"{self.installation}-dispatch"

    @property
    def deliver(self) -> str:
        """The queue of messages for webhooks."""
        return f"{self.installation}-deliver-queue"

    @property
    def bus(self) -> str:
        return f"{self.installation}-events"

    @property
    def machine(self) -> str:
        return f"{self.installation}-wait"

    @property
    def microvms(self) -> str:
        """The image of Lambda MicroVMs: of one installation alone: all that is made from it is taken as its own."""
        return self.installation

    def boundary(self, region: str) -> str:
        return f"{self.installation}-functions-{region}"
