"""Pools with a credential: where it may be kept, and how a new one takes its place without a restart."""

from __future__ import annotations

from typing import Any

import pytest

from differently_adapters.pools import REREAD_SECONDS
from differently_adapters.providers.fake import FakeBackend
from differently_core.contract import Credential, CredentialGone, Vaulted, text_fields
from differently_core.errors import ProviderUnavailable
from differently_core.model.secret import Secret
from differently_core.operations import pools
from differently_core.operations.catalog import CACHE_SECONDS, Catalog
from differently_core.operations.core import Core
from differently_core.store.ports import Put
from differently_core.store.sealing import MemorySealer
from tests.support.api import Mail, Reply, World

FIRST, SECOND, WRONG = "canary-first-9d02", "canary-second-51ce", "canary-wrong-e07f"
ARN = "arn:aws:secretsmanager:eu-central-1:000000000000:secret:pools/eu-AbCdEf"


def op(world: World, method: str, path: str, body: Any = None) -> Reply:
    return world.call(method, path, body, token=world.operator)


def put(world: World, token: str, query: str = "", name: str = "eu") -> Reply:
    return op(world, "PUT", f"/v1/admin/secrets/{name}{query}", {"fields": {"token": token}})


def keyed(world: World, name: str = "keyed", credential: str = "secret:eu", shared: str = "shared") -> FakeBackend:
    """A pool with a credential, on a backend that takes `FIRST` alone."""
    backend = world.pool(name, credential=credential, config={"backend": shared})
    backend.token = FIRST
    return backend


def healthy(world: World, name: str = "keyed") -> bool:
    return pools.probe(world.core, pools.detail(world.core, name).pool).healthy


class Process:
    """A second process of the same control plane: its own caches, its own adapters."""

    def __init__(self, world: World) -> None:
        catalog = Catalog(world.store, world.clock)
        self.core = Core(
            world.store, world.clock, world.core.ids, Mail(), catalog, world.new_backends(catalog), sealer=world.sealer
        )

    def healthy(self, name: str = "keyed") -> bool:
        adapter = self.core.backends.adapter(self.core.catalog.pool(name))
        try:
            adapter.health()
        except ProviderUnavailable:
            return False
        return True


def test_a_pool_uses_its_secret_and_shows_only_where_it_is_kept(world: World) -> None:
    put(world, FIRST)
    keyed(world)
    assert healthy(world)
    shown = op(world, "GET", "/v1/admin/pools/keyed")
    assert shown.json()["credential"] == "secret:eu"
    assert op(world, "GET", "/v1/admin/secrets/eu").json()["pools"] == 1
    assert b"canary" not in shown.raw
    op(world, "DELETE", "/v1/admin/pools/keyed")
    assert op(world, "GET", "/v1/admin/secrets/eu").json()["pools"] == 0


def test_a_rotation_reaches_every_process_within_one_refresh(world: World) -> None:
    """features.md 2 #11: replaced value used without restart."""
    put(world, FIRST)
    backend = keyed(world)
    other = Process(world)
    assert other.healthy()

    backend.token = SECOND  # the provider takes the new key from now on
    replaced = put(world, SECOND)
    assert (replaced.status, replaced.json()["pools"]) == (200, 1)
    assert healthy(world)
    world.clock.advance(CACHE_SECONDS)
    assert other.healthy()


@pytest.mark.parametrize("down", [False, True])
def test_a_key_that_the_backend_refuses_replaces_nothing_unless_told_to(world: World, down: bool) -> None:
    put(world, FIRST)
    backend = keyed(world)
    backend.up = not down
    refused = put(world, WRONG)
    assert (refused.status, refused.json()["error"]["details"]) == (409, {"pool": "keyed", "reason": "not_verified"})
    assert b"canary" not in refused.raw
    backend.up = True
    assert healthy(world)
    assert op(world, "GET", "/v1/admin/secrets/eu").json()["version"] == 1

    assert put(world, WRONG, "?verify=false").status == 200
    assert not healthy(world)


def test_a_key_of_another_account_is_told_by_what_it_does_not_show(world: World) -> None:
    """It opens the backend and looks healthy; every instance of the pool would seem to have vanished."""
    put(world, FIRST)
    backend = keyed(world)
    op(world, "DELETE", "/v1/admin/pools/main")
    world.core.catalog.forget()
    world.running(world.tenant())
    backend.token = None
    assert put(world, SECOND).status == 200, "the same account shows it"

    for instance in backend.instances():
        backend.vanish(instance.ref)
    refused = put(world, WRONG)
    assert (refused.status, refused.json()["error"]["details"]) == (
        409, {"pool": "keyed", "held": 1, "reason": "another_account"},
    )  # fmt: skip


def test_fields_that_the_kind_of_a_user_does_not_have_replace_nothing(world: World) -> None:
    put(world, FIRST)
    keyed(world)
    refused = op(world, "PUT", "/v1/admin/secrets/eu", {"fields": {"api_key": SECOND}})
    assert (refused.status, refused.json()["error"]["details"]) == (400, {"field": "credential", "adapter": "fake"})
    assert healthy(world)


def test_a_pool_whose_kind_is_not_built_holds_up_no_rotation(world: World) -> None:
    """features.md 2 #83: it can be used with no key, so none is tried on it; it takes the new one up all the same."""
    put(world, FIRST)
    keyed(world)
    old = pools.detail(world.core, "keyed").pool.with_(name="old", adapter="vanished")
    world.store.transact([Put(old, (), "pool")])
    assert put(world, FIRST).json()["pools"] == 2
    assert healthy(world)
    first, second = (pools.detail(world.core, name).pool for name in ("keyed", "old"))
    assert first.credential_revision == second.credential_revision


def test_a_secret_in_use_stays(world: World) -> None:
    put(world, FIRST)
    keyed(world)
    keyed(world, "second")
    held = op(world, "DELETE", "/v1/admin/secrets/eu")
    assert (held.status, held.json()["error"]["details"]) == (409, {"secret": "eu", "pools": ["keyed", "second"]})
    assert healthy(world)


def test_a_forced_removal_takes_its_pools_down_until_it_is_put_again(world: World) -> None:
    """features.md 2 #78: a deleted credential takes the pool down, in every process."""
    put(world, FIRST)
    keyed(world)
    other = Process(world)
    assert other.healthy()
    assert op(world, "DELETE", "/v1/admin/secrets/eu?force=true").status == 204
    assert not healthy(world)
    assert "was removed" in op(world, "GET", "/v1/admin/pools/keyed").json()["health"]["message"]
    world.clock.advance(CACHE_SECONDS)
    with pytest.raises(CredentialGone):
        other.healthy()

    assert put(world, FIRST).json()["pools"] == 1
    assert healthy(world)
    world.clock.advance(CACHE_SECONDS)
    assert other.healthy()
    assert op(world, "DELETE", "/v1/admin/pools/keyed").status == 204
    assert op(world, "DELETE", "/v1/admin/secrets/eu").status == 204


def test_a_sealer_that_is_down_leaves_working_pools_alone(memory: World) -> None:
    """features.md 2 #78: unreadable is not deleted."""
    put(memory, FIRST)
    keyed(memory)
    assert isinstance(memory.sealer, MemorySealer)
    fresh = Process(memory)
    put(memory, FIRST)
    memory.sealer.up = False
    assert healthy(memory)
    with pytest.raises(Exception, match="right now"):
        fresh.healthy()
    memory.sealer.up = True
    assert fresh.healthy()


def test_a_process_with_an_old_view_of_the_pool_still_finds_the_secret(world: World) -> None:
    put(world, FIRST)
    keyed(world)
    fresh = Process(world)
    fresh.core.catalog.pools()
    put(world, FIRST)
    assert fresh.healthy()


@pytest.mark.parametrize(
    "credential",
    [
        WRONG, f"secret:{WRONG}!", "secret:", "env:AWS_SECRET_ACCESS_KEY", "env:PATH", f"env:{WRONG}",
        "arn:aws:s3:::bucket", "arn:aws:iam::000000000000:role/x", f"{ARN}?{WRONG}", "",
    ],
)  # fmt: skip
def test_what_is_no_reference_is_refused_and_not_repeated(memory: World, credential: str) -> None:
    """Users paste the key itself; and no pool may send the process's own keys to its endpoint."""
    body = {"name": "keyed", "adapter": "fake", "maxConcurrency": 1, "credential": credential}
    reply = op(memory, "POST", "/v1/admin/pools", body)
    assert (reply.status, reply.json()["error"]["details"]["field"]) == (400, "credential")
    assert b"canary" not in reply.raw


@pytest.mark.parametrize("credential", ["secret:none", "env:DIFFERENTLY_CREDENTIAL_NONE", ARN])
def test_a_credential_that_does_not_exist_makes_no_pool(credential: str) -> None:
    world = World(vaults=Vault())
    body = {"name": "keyed", "adapter": "fake", "maxConcurrency": 1, "credential": credential}
    reply = op(world, "POST", "/v1/admin/pools", body)
    assert (reply.status, reply.json()["error"]["details"]["field"]) == (400, "credential")
    assert op(world, "GET", "/v1/admin/pools/keyed").status == 404


@pytest.mark.parametrize("text", [FIRST, f"{FIRST}\n", f'{{"token": "{FIRST}"}}'])
def test_a_credential_may_come_from_the_environment(memory: World, text: str) -> None:
    memory.variables["DIFFERENTLY_CREDENTIAL_EU"] = text
    keyed(memory, credential="env:DIFFERENTLY_CREDENTIAL_EU")
    assert healthy(memory)


class Vault:
    def __init__(self) -> None:
        self.kept: dict[str, tuple[str, str]] = {}

    def read(self, vaulted: Vaulted) -> Credential:
        if vaulted.arn not in self.kept:
            raise CredentialGone("It does not exist.", settled=True)
        version, text = self.kept[vaulted.arn]
        return Credential(version, text_fields(text))


def test_a_credential_in_a_vault_is_followed() -> None:
    vault = Vault()
    world = World(vaults=vault)
    vault.kept[ARN] = ("1", FIRST)
    backend = keyed(world, credential=ARN)
    assert healthy(world)

    vault.kept[ARN] = ("2", SECOND)
    world.clock.advance(REREAD_SECONDS)
    assert healthy(world), "the backend does not take it yet, so the first one stays"
    backend.token = SECOND
    world.clock.advance(REREAD_SECONDS)
    assert healthy(world)
    del vault.kept[ARN]
    world.clock.advance(REREAD_SECONDS)
    assert not healthy(world)


def test_pools_that_begin_and_end_while_a_secret_is_replaced_are_all_counted(world: World) -> None:
    """Whoever comes in between makes the replacement look again."""
    put(world, FIRST)
    keyed(world)
    real = world.core.ids.new
    begun: list[bool] = []

    def new(prefix: str, randomness: bytes | None = None) -> str:
        if prefix == "evt" and not begun:
            begun.append(True)
            keyed(world, "late")
            op(world, "DELETE", "/v1/admin/pools/keyed")
        return real(prefix, randomness)

    world.core.ids.new = new  # type: ignore[method-assign]
    replaced = put(world, FIRST)
    assert (replaced.json()["version"], replaced.json()["pools"]) == (2, 1)
    secret = world.store.get(Secret, Secret.key_of("eu"))
    assert secret is not None
    assert pools.detail(world.core, "late").pool.credential_revision == secret.revision
