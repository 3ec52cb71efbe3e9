"""Trying a credential before it is stored: it must open the backend, and show what the pool holds there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from ..contract import Adapter, CredentialGone, Operation, supports
from ..errors import DifferentlyError, InvalidRequest, InvalidState
from ..model.attempt import Attempt, AttemptState
from ..model.pool import Pool
from .backends import calling
from .core import Core

HELD_LOOK = 50
"""Of so many held instances at least one must be seen through a new credential."""


@contextmanager
def trial(core: Core, pool: Pool, credential: Mapping[str, str] | None = None) -> Iterator[Adapter]:
    """An adapter for this pool as it is about to be, closed on the way out.

    Raises `InvalidRequest` naming what its kind cannot use, or `credential` where that does not exist.
    """
    try:
        adapter = core.backends.trial(pool, credential)
    except CredentialGone as gone:
        raise InvalidRequest(gone.message, field="credential") from gone
    try:
        yield adapter
    finally:
        with suppress(Exception):  # what was found counts, not how it closes
            calling(adapter, adapter.close)


def verify(core: Core, pool: Pool, adapter: Adapter) -> None:
    """Reads only. Raises `InvalidState` when the backend refuses the credential, or shows nothing that the pool holds.

    One that opens another account of the same provider would look healthy, and every instance of the pool would seem
    to have vanished.
    """
    try:
        if supports(adapter, Operation.VERIFY_CREDENTIAL):
            calling(adapter, adapter.verify_credential)
        else:
            calling(adapter, adapter.health)
        held = _held(core, pool.name)
        instances = calling(adapter, lambda: adapter.list(core.catalog.installation().id)) if held else []
    except DifferentlyError as error:
        raise InvalidState(
            f"Pool {pool.name} cannot be used with this credential: {error.message} Nothing was changed.",
            pool=pool.name, reason="not_verified",
        ) from error  # fmt: skip
    if held and not held & {instance.ref for instance in instances}:
        raise InvalidState(
            f"Pool {pool.name} holds {len(held)} instances, and this credential shows none of them: it belongs to "
            "another account. Nothing was changed.",
            pool=pool.name, held=len(held), reason="another_account",
        )  # fmt: skip


def _held(core: Core, pool: str) -> set[str]:
    page = core.store.query_pool(pool, limit=HELD_LOOK)
    return {
        row.ref
        for row in page.rows
        if isinstance(row, Attempt) and row.status is AttemptState.LIVE and row.ref is not None
    }
