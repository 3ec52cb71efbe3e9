"""The adapters of a process: one for each pool, built on first use and kept while the pool's configuration stays.

A pool that drains or is renamed in the console gets a new version and keeps its adapter, so what runs in it goes on
over the same connections.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from pydantic import JsonValue

from differently_core.contract import (
    Adapter,
    Credential,
    CredentialGone,
    Credentials,
    Operation,
    StoredSecret,
    Verification,
    parse_reference,
    supports,
)
from differently_core.errors import DifferentlyError, InvalidRequest, ProviderUnavailable
from differently_core.model.pool import Pool, Trust
from differently_core.runtime.clock import Clock
from differently_core.runtime.telemetry import described

from .registry import KINDS, TrustList, build, check_level, fingerprint, load

log = logging.getLogger(__name__)
REREAD_SECONDS: Final = 60.0
"""How often a credential that is kept outside of the store is looked at again."""
RETRY_SECONDS: Final = 5.0
"""How soon a credential is looked at again that could not be read or did not prove itself."""
RETIRED_SECONDS: Final = 9_000.0
"""How long a replaced value stays untold: longer than any call that may have been sent with it."""
_Made = tuple[str, Mapping[str, JsonValue], str | None, datetime]


@dataclass(frozen=True)
class _Built:
    made: _Made
    """What the adapter was built from, but for its credential."""
    credential: Credential | None
    revision: str | None
    """The revision that the pool named when this was decided; `credential` is an older one where that cannot be read.
    """
    adapter: Adapter
    look_at: float
    """By the monotonic clock: when to look at the credential again, whatever the pool says."""
    retired: tuple[tuple[float, str], ...] = field(default=(), repr=False)
    """Replaced values, each with the moment until which it stays untold."""

    def serves(self, pool: Pool, now: float) -> bool:
        return self.made == _made(pool) and self.revision == pool.credential_revision and now < self.look_at

    def kept(self, pool: Pool, look_at: float) -> _Built:
        """The same adapter, looked at for what the pool says now."""
        return replace(self, revision=pool.credential_revision, look_at=look_at)


class _Slot:
    """The adapter of one pool. A pool whose credential is slow to come holds up no other."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.built: _Built | None = None


class PoolAdapters:
    """What operations see as `Backends`.

    `dev` permits the kinds that give no isolation; kinds that were verified by less than `minimum` are refused.
    """

    def __init__(
        self,
        clock: Clock,
        installation: Callable[[], str],
        *,
        credentials: Credentials | None = None,
        minimum: Verification = Verification.FAKE,
        dev: bool = False,
    ) -> None:
        self._clock = clock
        self._installation = installation
        self._credentials = credentials or _NoCredentials()
        self._minimum = minimum
        self._dev = dev
        self._slots: dict[str, _Slot] = {}
        self._lock = threading.Lock()

    def adapter(self, pool: Pool) -> Adapter:
        with self._lock:
            slot = self._slots.setdefault(pool.name, _Slot())
        built = slot.built
        if built is not None and built.serves(pool, self._clock.monotonic()):
            return built.adapter
        # One thread renews; the others go on with an adapter that only waits for a look at its credential.
        waits = built is None or built.made != _made(pool)
        if not slot.lock.acquire(blocking=waits):
            assert built is not None
            return built.adapter
        try:
            built = slot.built
            if built is None or not built.serves(pool, self._clock.monotonic()):
                # The replaced adapter is not closed: calls may be under way on it, and its connections go with it when
                # the last of them ends.
                slot.built = self._renewed(slot, pool)
            assert slot.built is not None
            return slot.built.adapter
        finally:
            slot.lock.release()

    def fingerprint(self, pool: Pool) -> str:
        return fingerprint(pool.adapter, pool.config)

    def trial(self, pool: Pool, credential: Mapping[str, str] | None = None) -> Adapter:
        """An adapter that is not kept; with the credential that the pool refers to, unless one is given."""
        if credential is None and pool.credential is not None:
            credential = self._credentials.read(pool).fields
        return self._build(pool, credential, ())

    def _renewed(self, slot: _Slot, pool: Pool) -> _Built:
        """What takes the slot; what works stays as long as its successor is not known to work."""
        before = slot.built
        same = before if before is not None and before.made == _made(pool) else None
        try:
            credential = self._credential(before, pool)
        except CredentialGone:
            slot.built = None
            raise
        except DifferentlyError as error:
            if same is None:
                raise
            log.warning("credential not read, the last one stays", extra={"pool": pool.name, "error": error.message})
            return same.kept(pool, self._clock.monotonic() + RETRY_SECONDS)
        if same is not None and credential is not None and same.credential is not None:
            if same.credential.version == credential.version:
                return same.kept(pool, self._look_at(pool))
            if not _is_stored(pool) and not self._proves_itself(pool, credential):
                return same.kept(pool, self._clock.monotonic() + RETRY_SECONDS)
        retired = self._retired(before, credential)
        fields = credential.fields if credential is not None else None
        adapter = self._build(pool, fields, tuple(value for _, value in retired))
        return _Built(_made(pool), credential, pool.credential_revision, adapter, self._look_at(pool), retired)

    def _credential(self, before: _Built | None, pool: Pool) -> Credential | None:
        if pool.credential is None:
            return None
        known = before.credential if before is not None and before.made[2] == pool.credential else None
        if known is not None and _is_stored(pool) and known.version == pool.credential_revision:
            return known
        return self._credentials.read(pool)

    def _look_at(self, pool: Pool) -> float:
        """A stored credential is replaced together with its pool, so it needs no look of its own."""
        if pool.credential is None or _is_stored(pool):
            return float("inf")
        return self._clock.monotonic() + REREAD_SECONDS

    def _proves_itself(self, pool: Pool, credential: Credential) -> bool:
        """A stored credential was tried before it was stored; one from elsewhere is tried here."""
        try:
            adapter = self._build(pool, credential.fields, ())
            with _closing(adapter):
                adapter.verify_credential() if supports(adapter, Operation.VERIFY_CREDENTIAL) else adapter.health()
        except Exception as error:
            facts = {"pool": pool.name, "error": type(error).__name__}
            log.warning("new credential refused, the last one stays", extra=facts)
            return False
        return True

    def _retired(self, before: _Built | None, credential: Credential | None) -> tuple[tuple[float, str], ...]:
        if before is None:
            return ()
        now = self._clock.monotonic()
        values = set(credential.fields.values()) if credential is not None else set()
        old = set(before.credential.fields.values()) if before.credential is not None else set()
        fresh = tuple((now + RETIRED_SECONDS, value) for value in sorted(old - values))
        return (*(entry for entry in before.retired if entry[0] > now), *fresh)

    def _build(self, pool: Pool, credential: Mapping[str, str] | None, retired: tuple[str, ...]) -> Adapter:
        check_level(pool.adapter, self._minimum)
        try:
            return build(
                pool.adapter, pool.config, pool=pool.name, installation=self._installation(), clock=self._clock,
                credential=credential, retired=retired, dev=self._dev,
            )  # fmt: skip
        except DifferentlyError:
            raise
        except Exception as error:  # a library of the provider's that is missing or does not load
            # Its text stays here: a library may quote what it was given.
            log.warning("adapter not built", extra={"pool": pool.name, "exception": described(error)})
            problem = ProviderUnavailable(
                f"The adapter {pool.adapter} of pool {pool.name} cannot be built: {type(error).__name__}.",
                settled=True, pool=pool.name,
            )  # fmt: skip
        raise problem

    def close(self) -> None:
        """Give back what the adapters hold; the process is about to end."""
        with self._lock:
            slots, self._slots = self._slots, {}
        for slot in slots.values():
            if slot.built is not None:
                with _closing(slot.built.adapter):
                    pass


@contextmanager
def _closing(adapter: Adapter) -> Iterator[None]:
    """Close it on the way out; one that cannot close must not keep others open or hide what was found."""
    try:
        yield
    finally:
        with suppress(Exception):
            adapter.close()


class _NoCredentials:
    def read(self, pool: Pool) -> Credential:
        raise ProviderUnavailable(
            "This pool names a stored credential, and no store of credentials is set up.", settled=True, pool=pool.name
        )


def _made(pool: Pool) -> _Made:
    return pool.adapter, pool.config, pool.credential, pool.created_at


def _is_stored(pool: Pool) -> bool:
    if pool.credential is None:
        return False
    try:
        return isinstance(parse_reference(pool.credential), StoredSecret)
    except InvalidRequest:
        return False


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
