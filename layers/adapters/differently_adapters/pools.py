"""The adapters of a process: one for each pool, built on first use and kept while the pool's configuration stays.

A pool that drains or is renamed in the console gets a new version and keeps its adapter, so what runs in it goes on
over the same connections.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime

from pydantic import JsonValue

from differently_core.contract import Adapter
from differently_core.errors import DifferentlyError, InvalidRequest, ProviderUnavailable
from differently_core.model.pool import Pool, Trust
from differently_core.runtime.clock import Clock

from .registry import KINDS, TrustList, build, load

Credentials = Callable[[str], Mapping[str, str]]
"""The fields of a stored credential by its name; raises `ProviderUnavailable` when it cannot be read."""
_Made = tuple[str, Mapping[str, JsonValue], str | None, datetime]


class PoolAdapters:
    """What operations see as `Backends`. `dev` permits the kinds that give no isolation."""

    def __init__(
        self,
        clock: Clock,
        installation: Callable[[], str],
        *,
        credentials: Credentials | None = None,
        dev: bool = False,
    ) -> None:
        self._clock = clock
        self._installation = installation
        self._credentials = credentials or _no_credentials
        self._dev = dev
        self._built: dict[str, tuple[_Made, Adapter]] = {}
        self._lock = threading.Lock()

    def adapter(self, pool: Pool) -> Adapter:
        made = (pool.adapter, pool.config, pool.credential, pool.created_at)
        with self._lock:
            known = self._built.get(pool.name)
            if known is not None and known[0] == made:
                return known[1]
            # Building does no I/O, so nobody waits long here. The replaced adapter is not closed: calls may be under
            # way on it, and its connections go with it when the last of them ends.
            adapter = self._build(pool)
            self._built[pool.name] = (made, adapter)
            return adapter

    def _build(self, pool: Pool) -> Adapter:
        credential = self._credentials(pool.credential) if pool.credential is not None else None
        try:
            return build(
                pool.adapter, pool.config, pool=pool.name, installation=self._installation(), clock=self._clock,
                credential=credential, dev=self._dev,
            )  # fmt: skip
        except DifferentlyError:
            raise
        except Exception as error:  # a library of the provider's that is missing or does not load
            raise ProviderUnavailable(
                f"The adapter {pool.adapter} of pool {pool.name} cannot be built: {type(error).__name__}.",
                settled=True, pool=pool.name,
            ) from error  # fmt: skip

    def close(self) -> None:
        """Give back what the adapters hold; the process is about to end."""
        with self._lock:
            built, self._built = self._built, {}
        for _, adapter in built.values():
            with suppress(Exception):  # one that cannot close must not keep the others open
                adapter.close()


def _no_credentials(name: str) -> Mapping[str, str]:
    raise ProviderUnavailable(
        "This pool names a stored credential, and no store of credentials is set up.", settled=True
    )


def trust_of(kind: str, declared: Trust | None) -> Trust:
    """Whose machines a pool of this kind runs on; raises `InvalidRequest` where the declaration is missing or wrong."""
    fixed = load(kind).registration.trust
    if fixed is not None:
        if declared not in (None, fixed):
            raise InvalidRequest(f"A pool of kind {kind} is always {fixed}; leave trust out.", field="trust")
        return fixed
    if declared is not None:
        return declared
    if KINDS[kind].trust is TrustList.DEV_ONLY:
        return Trust.PRIVATE  # it never leaves this process or machine
    raise InvalidRequest(
        f"Say whose machines this {kind} pool runs on: trust is private (yours) or external (somebody else's).",
        field="trust",
    )
