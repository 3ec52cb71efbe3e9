"""The adapters of this process: one for each pool as it is configured, made on first use."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

from differently_adapters import registry
from differently_core.contract import Adapter
from differently_core.errors import DifferentlyError, ProviderUnavailable
from differently_core.model.pool import Pool
from differently_core.runtime.clock import Clock

_Build = tuple[str, str, str | None]


class CachedBackends:
    """Kinds for development are allowed here: that is what this is for."""

    def __init__(self, installation: Callable[[], str], clock: Clock) -> None:
        self._installation = installation
        self._clock = clock
        self._adapters: dict[str, tuple[_Build, Adapter]] = {}
        self._lock = threading.Lock()

    def adapter(self, pool: Pool) -> Adapter:
        # Not the version: a pool that is removed and registered anew starts at version 1 again.
        build: _Build = (pool.adapter, json.dumps(pool.config, sort_keys=True), pool.credential)
        with self._lock:
            made = self._adapters.get(pool.name)
            if made is not None and made[0] == build:
                return made[1]
            adapter = self._build(pool)
            self._adapters[pool.name] = (build, adapter)
        # An adapter in use by another thread must not lose its connections under it, so the old one is just let go.
        return adapter

    def _build(self, pool: Pool) -> Adapter:
        try:
            return registry.build(
                pool.adapter, pool.config, pool=pool.name, installation=self._installation(), clock=self._clock,
                dev=True,
            )  # fmt: skip
        except DifferentlyError:
            raise
        except Exception as error:
            raise ProviderUnavailable(
                f"The adapter {pool.adapter} of pool {pool.name} cannot be built: {type(error).__name__}.",
                settled=True, pool=pool.name,
            ) from error  # fmt: skip
