"""What a configuration file declares, brought into an installation that the API changes too."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from differently_api import declared
from differently_core.errors import ProviderUnavailable
from differently_core.model.declaration import Declaration
from differently_core.operations import pools
from differently_core.operations.declaring import Outcome, Verdict, reconcile
from tests.support.api import World

FILE: dict[str, Any] = {
    "pools": {"blue": {"adapter": "fake", "maxConcurrency": 5, "config": {"backend": "one"}}},
    "templates": {
        "default": {"resources": {"cpu": 2, "memoryMiB": 1024}},
        "python": {"images": {"blue": "python:3.13"}},
    },
    "policies": {"global": {"deniedPools": ["red"]}},
}


@pytest.fixture
def file() -> dict[str, Any]:
    return copy.deepcopy(FILE)


def run(world: World, file: dict[str, Any], **options: bool) -> dict[str, Outcome]:
    """Outcomes by kind and name."""
    outcomes = list(reconcile(world.core, declared.read(file).things(), **options))
    return {f"{outcome.what} {outcome.name}": outcome for outcome in outcomes}


def verdicts(outcomes: dict[str, Outcome]) -> dict[str, str]:
    return {name: outcome.verdict.value for name, outcome in outcomes.items()}


def pool(world: World, name: str = "blue") -> Any:
    return world.call("GET", f"/v1/admin/pools/{name}", token=world.operator).json()


def test_what_is_declared_is_made_and_a_second_run_changes_nothing(world: World, file: dict[str, Any]) -> None:
    tenant = world.tenant()
    file["quotas"] = {tenant.org: {"maxConcurrent": 7}, tenant.project: {"maxConcurrent": 3}}

    first = run(world, file)
    versions = pool(world)["generation"]
    second = run(world, file)

    assert verdicts(first) == {
        "pool blue": "create", "template default": "change", "template python": "create", "policy global": "change",
        f"quota {tenant.org}": "change", f"quota {tenant.project}": "change",
    }  # fmt: skip
    assert set(verdicts(second).values()) == {"same"}
    assert pool(world)["maxConcurrency"] == 5
    assert pool(world)["generation"] == versions
    quota = world.call("GET", f"/v1/projects/{tenant.project}/quota", token=world.operator).json()
    assert quota["limits"]["maxConcurrent"] == 3
    made = world.running(tenant, {"template": "python", "placement": {"allowedPools": ["blue"]}})
    assert world.call("GET", f"/v1/sandboxes/{made}", token=tenant.token).json()["pool"] == "blue"


def test_a_changed_file_changes_it(world: World, file: dict[str, Any]) -> None:
    run(world, file)
    file["pools"]["blue"]["maxConcurrency"] = 9
    outcomes = run(world, file)
    assert outcomes["pool blue"].verdict is Verdict.CHANGE
    assert outcomes["pool blue"].note == "max_concurrency"
    assert pool(world)["maxConcurrency"] == 9


def test_what_the_api_changed_since_is_told_and_set_back(world: World, file: dict[str, Any]) -> None:
    run(world, file)
    world.call("PATCH", "/v1/admin/pools/blue", {"maxConcurrency": 50}, token=world.operator)

    seen = run(world, file, dry_run=True)
    assert seen["pool blue"].verdict is Verdict.CHANGE
    assert "changed by the API since" in seen["pool blue"].note
    assert pool(world)["maxConcurrency"] == 50

    run(world, file)
    assert pool(world)["maxConcurrency"] == 5


def test_what_the_api_made_is_left_alone_unless_it_is_taken_over(world: World, file: dict[str, Any]) -> None:
    world.pool("blue", 77, config={"backend": "one"})

    outcomes = run(world, file)
    assert outcomes["pool blue"].verdict is Verdict.CONFLICT
    assert not outcomes["pool blue"].settled
    assert "max_concurrency" in outcomes["pool blue"].note
    assert outcomes["template python"].verdict is Verdict.CREATE
    assert pool(world)["maxConcurrency"] == 77

    assert run(world, file, take_over=True)["pool blue"].verdict is Verdict.CHANGE
    assert pool(world)["maxConcurrency"] == 5


def test_a_policy_that_an_operator_wrote_is_not_written_over(world: World, file: dict[str, Any]) -> None:
    body = {"rules": {"deniedPools": ["main"]}}
    assert world.call("PUT", "/v1/policies/global", body, token=world.operator).status == 200
    assert run(world, file)["policy global"].verdict is Verdict.CONFLICT
    kept = world.call("GET", "/v1/policies/global", token=world.operator).json()
    assert kept["rules"]["deniedPools"] == ["main"]


def test_what_is_not_declared_any_more_stays_and_is_the_apis(world: World, file: dict[str, Any]) -> None:
    run(world, file)
    del file["pools"]["blue"]

    assert run(world, file, dry_run=True)["pool blue"].verdict is Verdict.LEFT
    left = run(world, file)["pool blue"]
    assert (left.verdict, left.settled) == (Verdict.LEFT, True)
    assert pool(world)["state"] == "active"
    assert "pool blue" not in run(world, file)
    assert run(world, FILE)["pool blue"].verdict is Verdict.TAKE


def test_what_was_deleted_meanwhile_is_made_again(world: World, file: dict[str, Any]) -> None:
    run(world, file)
    assert world.call("DELETE", "/v1/templates/python", token=world.operator).status == 204
    outcome = run(world, file)["template python"]
    assert (outcome.verdict, outcome.note) == (Verdict.CREATE, "it was deleted since the last deployment")


def test_adapter_and_trust_stay_what_they_are(world: World, file: dict[str, Any]) -> None:
    run(world, file)
    remote = {"adapter": "remote", "trust": "private", "maxConcurrency": 5}
    file["pools"]["blue"] = {**remote, "config": {"endpoint": "https://sandboxes.example.com"}}
    outcome = run(world, file, take_over=True)["pool blue"]
    assert outcome.verdict is Verdict.CONFLICT
    assert outcome.note.startswith("adapter, trust cannot be changed") or outcome.note.startswith("adapter cannot")
    assert pool(world)["adapter"] == "fake"


def test_what_fails_is_named_and_keeps_nothing_else_from_being_done(world: World, file: dict[str, Any]) -> None:
    file["pools"] = {"red": {"adapter": "fake", "maxConcurrency": 5, "credential": "secret:missing"}, **file["pools"]}
    file["quotas"] = {"org_01ARZ3NDEKTSV4RRFFQ69G5FAV": {"maxConcurrent": 1}}
    outcomes = run(world, file)
    assert "missing" in outcomes["pool red"].error
    assert outcomes["quota org_01ARZ3NDEKTSV4RRFFQ69G5FAV"].error
    assert [name for name, outcome in outcomes.items() if not outcome.settled] == [
        "pool red",
        "quota org_01ARZ3NDEKTSV4RRFFQ69G5FAV",
    ]
    assert pool(world)["maxConcurrency"] == 5


def test_a_run_that_dies_before_its_mark_is_put_right_by_the_next(
    world: World, file: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    things = list(declared.read(file).things())
    with monkeypatch.context() as patched:
        patched.setattr("differently_core.operations.declaring.digest", _dies)
        with pytest.raises(SystemExit):
            list(reconcile(world.core, things))
    assert pool(world)["maxConcurrency"] == 5
    assert world.core.store.get(Declaration, Declaration.key_of(things[0].what, "blue")) is None

    outcomes = run(world, file)
    assert outcomes["pool blue"].verdict is Verdict.TAKE
    assert all(outcome.settled for outcome in outcomes.values())
    assert set(verdicts(run(world, file)).values()) == {"same"}


def _dies(_: object) -> str:
    raise SystemExit("killed")


def test_a_backend_that_whoever_deploys_cannot_reach_is_no_obstacle(
    memory: World, file: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(memory, file)

    def down(*_: object) -> None:
        raise ProviderUnavailable("It does not answer.")

    monkeypatch.setattr("differently_adapters.providers.fake.FakeAdapter.health", down)
    monkeypatch.setattr("differently_adapters.providers.fake.FakeAdapter.list", down)
    file["pools"]["blue"]["maxConcurrency"] = 6
    file["pools"]["green"] = {"adapter": "fake", "maxConcurrency": 1, "config": {"backend": "two"}}
    assert all(outcome.settled for outcome in run(memory, file).values())
    assert pool(memory)["maxConcurrency"] == 6


def test_lines_name_fields_and_no_values(memory: World, file: dict[str, Any]) -> None:
    run(memory, file)
    file["pools"]["blue"]["config"] = {"backend": "canary"}
    (line,) = [str(outcome) for outcome in run(memory, file).values() if outcome.verdict is not Verdict.SAME]
    assert line == "change   pool blue: config"


def test_no_event_is_written_by_anybody_else(memory: World, file: dict[str, Any]) -> None:
    run(memory, file)
    assert pools.detail(memory.core, "blue").pool.version == 1
    policy = memory.call("GET", "/v1/policies/global", token=memory.operator).json()
    assert policy["updatedBy"] == "system:deployment"


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ({"pools": {"main": {"adapter": "nope", "maxConcurrency": 1}}}, "no adapter kind 'nope'"),
        ({"pools": {"main": {"adapter": "fake"}}}, "pools.main.maxConcurrency"),
        ({"pools": {"main": {"name": "other", "adapter": "fake", "maxConcurrency": 1}}}, "the table names the pool"),
        (
            {"pools": {"main": {"adapter": "fake", "maxConcurrency": 1, "credential": "hunter2"}}},
            "credential",
        ),
        ({"templates": {"python": {"version": 3}}}, "python.version"),
        ({"templates": {"UPPER": {}}}, "templates.UPPER"),
        ({"policies": {"acme": {}}}, "policies.acme"),
        ({"policies": {"global": {"externel": "never"}}}, "externel"),
        ({"quotas": {"global": {}}}, "quotas.global"),
        ({"quotas": {"org_01ARZ3NDEKTSV4RRFFQ69G5FAV": {"maxConcurrent": -1}}}, "maxConcurrent"),
    ],
)
def test_what_cannot_be_used_is_named_before_anything_is_deployed(file: dict[str, Any], said: str) -> None:
    with pytest.raises(declared.Undeclarable) as refused:
        declared.read(file)
    assert said in str(refused.value)
    assert "hunter2" not in str(refused.value)
