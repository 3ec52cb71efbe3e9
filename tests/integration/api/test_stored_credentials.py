"""Credentials of providers: kept sealed, told of without a value, removed when nobody uses them."""

from __future__ import annotations

from typing import Any

import pytest

from differently_core.model.record import Table
from differently_core.model.secret import SealedFields, Secret
from differently_core.operations import secrets
from differently_core.store.sealing import MemorySealer, Unsealable
from tests.support.api import Reply, Tenant, World

FIRST, SECOND = "canary-first-9d02", "canary-second-51ce"


def op(world: World, method: str, path: str, body: Any = None) -> Reply:
    return world.call(method, path, body, token=world.operator)


def put(world: World, name: str = "eu", **fields: str) -> Reply:
    return op(world, "PUT", f"/v1/admin/secrets/{name}", {"fields": fields})


def test_a_credential_is_kept_and_told_of_without_its_value(world: World) -> None:
    made = put(world, token=FIRST, user="canary-user-77")
    assert made.status == 201
    view = made.json()
    assert view == {
        "name": "eu", "version": 1, "fields": ["token", "user"], "pools": 0, "createdAt": "2026-01-01T00:00:00Z",
        "updatedAt": "2026-01-01T00:00:00Z", "updatedBy": view["updatedBy"],
    }  # fmt: skip
    assert op(world, "GET", "/v1/admin/secrets/eu").json() == view
    listed = op(world, "GET", "/v1/admin/secrets")
    assert listed.json() == {"items": [view]}
    assert b"canary" not in made.raw + listed.raw


def test_what_is_kept_opens_where_it_is_needed_and_nowhere_else(world: World) -> None:
    put(world, token=FIRST)
    core = world.core
    head = core.store.get(Secret, Secret.key_of("eu"))
    assert head is not None
    sealed = core.store.get(SealedFields, SealedFields.key_of("eu", head.revision))
    assert sealed is not None
    installation = core.catalog.installation().id

    assert FIRST not in sealed.model_dump_json()
    assert secrets.unseal(core.sealer, installation, sealed) == {"token": FIRST}
    for moved in (
        sealed.with_(name="us"),
        sealed.with_(revision="rev_other"),
        sealed.with_(fields={"password": sealed.fields["token"]}),
    ):
        with pytest.raises(Unsealable):
            secrets.unseal(core.sealer, installation, moved)
    with pytest.raises(Unsealable):
        secrets.unseal(core.sealer, "inst_other", sealed)


def test_a_replacement_leaves_nothing_of_the_old_value(world: World) -> None:
    put(world, token=FIRST, user="u")
    before = world.core.store.get(Secret, Secret.key_of("eu"))
    assert before is not None
    world.clock.advance(60)
    replaced = put(world, token=SECOND)

    assert replaced.status == 200
    assert (replaced.json()["version"], replaced.json()["fields"]) == (2, ["token"])
    assert replaced.json()["createdAt"] < replaced.json()["updatedAt"]
    assert world.core.store.get(SealedFields, SealedFields.key_of("eu", before.revision)) is None


def test_a_credential_goes_for_good(world: World) -> None:
    put(world, token=FIRST)
    revision = world.core.store.get(Secret, Secret.key_of("eu")).revision  # type: ignore[union-attr]
    gone = op(world, "DELETE", "/v1/admin/secrets/eu")
    assert (gone.status, gone.raw) == (204, b"")
    assert world.core.store.get(SealedFields, SealedFields.key_of("eu", revision)) is None
    for method in ("GET", "DELETE"):
        assert op(world, method, "/v1/admin/secrets/eu").code == "not_found"
    assert put(world, token=SECOND).json()["version"] == 1


def test_every_change_is_an_event_without_a_value(memory: World) -> None:
    put(memory, token=FIRST)
    put(memory, token=SECOND)
    op(memory, "DELETE", "/v1/admin/secrets/eu")
    events = [row for slot, row in memory.store.rows().items() if slot[0] is Table.LOG and "secret" in row.action]  # type: ignore[attr-defined]
    assert [(event.action, event.target, event.details["version"]) for event in events] == [
        ("secret.put", "eu", 1), ("secret.put", "eu", 2), ("secret.delete", "eu", 2),
    ]  # fmt: skip
    assert "canary" not in str(memory.store.rows())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"token": ""},
        {"token": 5},
        {"token": None},
        {"token": f"{FIRST}\0"},
        {"token": f"{FIRST}\n"},
        {"token": f" {FIRST}"},
        {"token": "\n"},
        {"token": "é" * 2049},
        {FIRST.upper(): "x"},
        {f"{FIRST} ": "x"},
        {"token": {"nested": FIRST}},
        {f"f{n}": "x" for n in range(17)},
        [FIRST],
        FIRST,
    ],
)
def test_what_cannot_be_a_credential_is_refused_and_never_quoted(memory: World, fields: Any) -> None:
    """Users paste secrets into the wrong place: neither a value nor a name in its place comes back."""
    reply = op(memory, "PUT", "/v1/admin/secrets/eu", {"fields": fields})
    assert (reply.status, reply.json()["error"]["details"]["field"]) == (400, "fields")
    assert b"canary" not in reply.raw.lower()


@pytest.mark.parametrize("name", ["Upper", "a_b", "9", "-", "x" * 64, "canary.5d"])
def test_a_name_that_is_none_is_refused_and_not_repeated(memory: World, name: str) -> None:
    for method, body in (("PUT", {"fields": {"token": "x"}}), ("GET", None), ("DELETE", None)):
        reply = op(memory, method, f"/v1/admin/secrets/{name}", body)
        assert (reply.status, reply.json()["error"]["details"]["field"]) == (400, "name")
        assert f"{name}'".encode() not in reply.raw


def test_the_longest_credential_fits(world: World) -> None:
    """16 fields of 4,096 bytes, as KMS hands them back."""
    assert put(world, **{f"f{n}": "x" * 4096 for n in range(16)}).status == 201


def test_tenants_have_no_part_in_it(memory: World) -> None:
    tenant: Tenant = memory.tenant()
    for method, path, body in (
        ("PUT", "/v1/admin/secrets/eu", {"fields": {"token": FIRST}}), ("GET", "/v1/admin/secrets", None),
        ("GET", "/v1/admin/secrets/eu", None), ("DELETE", "/v1/admin/secrets/eu", None),
    ):  # fmt: skip
        reply = memory.call(method, path, body, token=tenant.token)
        assert (reply.status, reply.code) == (403, "forbidden")


def test_without_its_key_an_installation_keeps_nothing(memory: World) -> None:
    assert isinstance(memory.sealer, MemorySealer)
    memory.sealer.up = False
    reply = put(memory, token=FIRST)
    assert (reply.status, reply.code) == (503, "provider_unavailable")
    memory.sealer.up = True
    assert op(memory, "GET", "/v1/admin/secrets/eu").status == 404


def test_a_value_of_many_lines_keeps_its_last_line_break(memory: World) -> None:
    """A private key in PEM ends with one; only a token of one line was pasted wrongly."""
    pem = "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\n"
    assert op(memory, "PUT", "/v1/admin/secrets/eu", {"fields": {"key": pem}}).status == 201
