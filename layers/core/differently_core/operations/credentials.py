"""Where the credential of a pool comes from when its adapter is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ..contract import (
    ENVIRONMENT_PREFIX,
    Credential,
    CredentialGone,
    EnvironmentVariable,
    StoredSecret,
    Vaulted,
    parse_reference,
    text_fields,
)
from ..errors import InvalidRequest, ProviderUnavailable
from ..model.pool import Pool
from ..model.secret import SealedFields, Secret
from ..store.ports import Store
from ..store.sealing import Sealer
from .secrets import unseal


def variables(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Those of a process's variables that a pool may name: none of its own keys is among them."""
    return {name: value for name, value in environ.items() if name.startswith(ENVIRONMENT_PREFIX)}


class Vaults(Protocol):
    def read(self, vaulted: Vaulted) -> Credential:
        """Raises `CredentialGone` for one that does not exist, `ProviderUnavailable` for one that cannot be read."""
        ...


class PoolCredentials:
    """What a pool's `credential` refers to. `environment` holds the `variables` of the process."""

    def __init__(
        self, store: Store, sealer: Sealer, installation: Callable[[], str], *,
        environment: Mapping[str, str] | None = None, vaults: Vaults | None = None,
    ) -> None:  # fmt: skip
        self._store = store
        self._sealer = sealer
        self._installation = installation
        self._environment = environment if environment is not None else {}
        self._vaults = vaults

    def read(self, pool: Pool) -> Credential:
        """Raises `CredentialGone`, or another error when it cannot be read just now."""
        try:
            reference = parse_reference(pool.credential or "")
        except InvalidRequest as error:
            raise CredentialGone(error.message, settled=True, pool=pool.name) from None
        match reference:
            case StoredSecret(name):
                return self._stored(pool, name)
            case EnvironmentVariable(name):
                return self._variable(pool, name)
            case Vaulted():
                if self._vaults is None:
                    raise ProviderUnavailable("ARNs are not read in this process.", settled=True, pool=pool.name)
                return self._vaults.read(reference)

    def _stored(self, pool: Pool, name: str) -> Credential:
        sealed = self._sealed(name, pool.credential_revision) or self._newest(pool, name)
        return Credential(sealed.revision, unseal(self._sealer, self._installation(), sealed))

    def _newest(self, pool: Pool, name: str) -> SealedFields:
        """The pool was read from a cache, and its secret replaced or removed since."""
        secret = self._store.get(Secret, Secret.key_of(name))
        if secret is None:
            raise CredentialGone(f"The secret {name!r} of pool {pool.name} was removed.", settled=True, pool=pool.name)
        sealed = self._sealed(name, secret.revision)
        if sealed is None:
            raise ProviderUnavailable(f"The secret {name!r} is being replaced right now.", settled=True, pool=pool.name)
        return sealed

    def _sealed(self, name: str, revision: str | None) -> SealedFields | None:
        return self._store.get(SealedFields, SealedFields.key_of(name, revision)) if revision is not None else None

    def _variable(self, pool: Pool, name: str) -> Credential:
        text = self._environment.get(name)
        if not text:
            raise CredentialGone(f"The variable {name} of pool {pool.name} is not set.", settled=True, pool=pool.name)
        return Credential("environment", text_fields(text))
