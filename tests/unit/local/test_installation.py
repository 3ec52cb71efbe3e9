"""The first start makes what every start finds, and keys that still prove are kept."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from differently_adapters.pools import PoolAdapters
from differently_core.model.sandbox import Claim, Status
from differently_core.model.tenancy import KeyScope
from differently_core.operations import keys, pools
from differently_core.operations.catalog import Catalog
from differently_core.operations.core import Core
from differently_core.operations.worker import step
from differently_core.runtime.clock import SystemClock
from differently_core.runtime.ids import SystemIds
from differently_core.store.memory import MemoryStore
from differently_core.store.ports import Put
from differently_local import installation
from differently_local.failure import StartFailure
from differently_local.takeover import release_claims
from tests.support.world import Bag, World

URL = "http://127.0.0.1:8080"


class House:
    """A data directory and a store, which may each be lost."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.clock = SystemClock()
        self.ids = SystemIds(self.clock)
        self.said: list[str] = []
        self.new_store()

    def new_store(self) -> None:
        store = MemoryStore()
        catalog = Catalog(store, self.clock)
        backends = PoolAdapters(self.clock, lambda: catalog.installation().id, dev=True)
        self.core = Core(store, self.clock, self.ids, Bag(), catalog, backends)

    def start(self) -> installation.Access:
        self.peppers = installation.pepper(self.data_dir, self.ids)
        return installation.prepare(self.core, self.peppers, self.data_dir, URL, self.said.append)

    def prove(self, token: str) -> KeyScope:
        return keys.prove(self.core, self.peppers, token).scope


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_the_first_start_makes_everything(house: House) -> None:
    access = house.start()
    document = json.loads((house.data_dir / "dev.json").read_text())
    assert document == {
        "url": URL, "tenantKey": access.tenant_key, "operatorKey": access.operator_key, "projectId": access.project,
    }  # fmt: skip
    assert house.prove(access.tenant_key) is KeyScope.TENANT
    assert house.prove(access.operator_key) is KeyScope.OPERATOR
    detail = pools.detail(house.core, "devhost")
    assert detail.view is not None
    assert detail.view.healthy
    assert detail.pool.config == {"root": str(house.data_dir / "sandboxes")}
    assert house.said == []


def test_secrets_are_the_owners_alone(house: House) -> None:
    house.start()
    for name in ("dev.json", "pepper"):
        assert stat.S_IMODE((house.data_dir / name).stat().st_mode) == 0o600


def test_the_next_start_finds_everything(house: House) -> None:
    assert house.start() == house.start()
    assert house.said == []


def test_a_lost_dev_json_gets_new_keys_for_the_same_project(house: House) -> None:
    before = house.start()
    (house.data_dir / "dev.json").unlink()
    after = house.start()
    assert after.project == before.project
    assert after.tenant_key != before.tenant_key


@pytest.mark.parametrize("lost", ["store", "pepper"])
def test_keys_that_prove_nothing_any_more_are_replaced_and_that_is_said(house: House, lost: str) -> None:
    before = house.start()
    if lost == "store":
        house.new_store()
    else:
        (house.data_dir / "pepper").unlink()
    after = house.start()
    assert after.tenant_key != before.tenant_key
    assert house.prove(after.tenant_key) is KeyScope.TENANT
    assert "not valid any more" in " ".join(house.said)


def test_a_key_is_not_taken_for_another_kind(house: House) -> None:
    before = house.start()
    mixed = {"tenantKey": before.operator_key, "operatorKey": before.tenant_key}
    (house.data_dir / "dev.json").write_text(json.dumps(mixed))
    after = house.start()
    assert house.prove(after.tenant_key) is KeyScope.TENANT
    assert house.prove(after.operator_key) is KeyScope.OPERATOR


def test_a_damaged_pepper_is_told(house: House) -> None:
    (house.data_dir / "pepper").write_text("short")
    with pytest.raises(StartFailure, match="pepper is damaged"):
        house.start()


def test_the_pool_follows_a_data_directory_that_was_moved(
    house: House, tmp_path_factory: pytest.TempPathFactory
) -> None:
    house.start()
    house.data_dir = tmp_path_factory.mktemp("moved")
    house.start()
    pool = pools.detail(house.core, "devhost").pool
    assert pool.config == {"root": str(house.data_dir / "sandboxes")}
    assert house.core.backends.adapter(pool) is house.core.backends.adapter(house.core.catalog.pool("devhost"))


def test_a_pool_that_was_made_anew_gets_a_new_adapter(house: House, tmp_path: Path) -> None:
    house.start()
    pool = house.core.catalog.pool("devhost")
    before = house.core.backends.adapter(pool)
    assert house.core.backends.adapter(pool) is before
    assert house.core.backends.adapter(pool.with_(config={"root": str(tmp_path / "other")})) is not before


# Claims of dead workers


def test_a_claim_of_a_dead_worker_is_dropped_and_one_of_ours_is_not() -> None:
    world = World()
    world.add_pool()
    theirs, ours, free = world.create(), world.create(), world.create()
    for sandbox, owner in ((theirs, "local_1"), (ours, world.core.worker_name)):
        found = world.sandbox(sandbox)
        claim = Claim(owner=owner, until=world.core.after(65), generation=found.generation)
        claimed = found.with_(claim=claim, due_at=world.core.after(65), version=found.version + 1)
        world.core.store.transact([Put(claimed, (), "sandbox")])
    assert release_claims(world.core) == 1
    assert world.sandbox(theirs).claim is None
    assert world.sandbox(ours).claim is not None
    world.lose_messages()
    world.pass_time(3)
    assert world.status(theirs) is Status.RUNNING
    assert world.status(free) is Status.RUNNING
    assert world.status(ours) is Status.PROVISIONING


def test_what_runs_is_left_alone() -> None:
    world = World()
    world.add_pool()
    sandbox = world.create()
    step(world.core, sandbox)
    before = world.sandbox(sandbox)
    assert release_claims(world.core) == 0
    assert world.sandbox(sandbox) == before


def test_what_a_file_declares_is_brought_in_at_each_start(house: House, tmp_path: Path) -> None:
    house.start()
    file = tmp_path / "deployment.toml"
    file.write_text('name = "elsewhere"\n[templates.python]\nresources = { cpu = 2 }\n')
    installation.declare(house.core, file, house.said.append)
    assert house.said == ["create   template python"]
    installation.declare(house.core, file, house.said.append)
    assert len(house.said) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [("[", "is not TOML"), ("[pools.main]\nadapter = 'nope'\nmaxConcurrency = 1", "no adapter kind"), (None, "read")],
)
def test_a_file_that_declares_nothing_usable_ends_the_start(
    house: House, tmp_path: Path, text: str | None, said: str
) -> None:
    file = tmp_path / "deployment.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(StartFailure, match=said):
        installation.declare(house.core, file, house.said.append)
