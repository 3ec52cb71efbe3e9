"""The same world, in which organizations and projects are also archived and deleted while their sandboxes live."""

from __future__ import annotations

from differently_core.model.attempt import Attempt, AttemptState
from differently_core.model.sandbox import ENDED, Sandbox
from differently_core.model.tenancy import Org, Project, TenantState
from differently_core.operations import closing
from differently_core.operations.core import Core
from tests.support.world import OPERATOR

from .clients import Client, Job
from .monitor import must
from .simulation import Happening, Simulation

CLOSED = frozenset({TenantState.ARCHIVED, TenantState.DELETED})
LOOK_EVERY = 20


class ClosingSimulation(Simulation):
    """I4, I5 and I6 for tenants: one that counts as closed holds nothing, and nothing of it starts any more."""

    def _drawn_schedule(self) -> tuple[list[Happening], list[int]]:
        happenings, weights = super()._drawn_schedule()
        return [*happenings, self._close], [*weights, self.rng.choice((1, 2))]

    def _close(self, core: Core) -> Job | None:
        """Seldom, and never the last one: a world in which everybody is closed tells nothing more."""
        left = self._open_clients()
        if len(left) < 2 or self.rng.random() < 0.7:
            return None
        caller = self.rng.choice(self.world.clients).caller
        assert caller.org is not None
        org, project = caller.org, caller.project if self.rng.random() < 0.7 else None
        target = self.rng.choice((TenantState.ARCHIVED, TenantState.DELETED))
        return Job(
            f"{target} {(project or org)[-6:]}",
            lambda: self._calls.answered(lambda: closing.close(core, OPERATOR, org, project, target)),
        )

    def _take_step(self) -> None:
        super()._take_step()
        if self.step % LOOK_EVERY == 0:
            self._closed_hold_nothing()

    def _closed_hold_nothing(self) -> None:
        closed = self._closed()
        for row in self.world.monitor.rows.values():
            if isinstance(row, Sandbox) and row.status not in ENDED:
                must(not {row.org, row.project} & closed, "I4", f"{row.id} lives, and its tenant is closed")
            elif isinstance(row, Attempt) and row.status is not AttemptState.SETTLED:
                must(
                    not {row.org, row.project} & closed,
                    "I4", f"attempt {row.number} of {row.sandbox} is {row.status}, and its tenant is closed",
                )  # fmt: skip

    def _closed(self) -> set[str]:
        rows = self.world.monitor.rows.values()
        return {row.id for row in rows if isinstance(row, (Org, Project)) and row.state in CLOSED}

    def _open_clients(self) -> list[Client]:
        """Those whose organization and project are neither closed nor on their way."""
        rows = self.world.monitor.rows.values()
        open_ = {row.id for row in rows if isinstance(row, (Org, Project)) and row.state is TenantState.ACTIVE}
        return [client for client in self.world.clients if {client.caller.org, client.caller.project} <= open_]
