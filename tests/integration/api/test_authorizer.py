"""The authorizer: what it takes for a key, what it says of one, and what it never says."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from differently_core.errors import ProviderUnavailable
from differently_core.model.tenancy import KeyScope
from differently_core.operations import keys
from differently_core.runtime.ids import KeyId
from tests.support.api import BOOT, STAGE, World


def event(authorization: str | None, header: str = "Authorization") -> dict[str, Any]:
    headers = {header: authorization} if authorization is not None else {}
    return {"type": "REQUEST", "methodArn": f"{STAGE}/GET/v1/sandboxes", "headers": headers, "requestContext": {}}


def test_a_tenants_key_gets_the_whole_stage_and_its_context(world: World) -> None:
    tenant = world.tenant()
    answer = world.app.authorizer(event(f"Bearer {tenant.token}"))
    key = "key_" + tenant.token.split("_")[1]
    assert answer["principalId"] == key
    assert answer["context"] == {"keyId": key, "scope": "tenant", "org": tenant.org, "project": tenant.project}
    (statement,) = answer["policyDocument"]["Statement"]
    assert statement == {"Action": "execute-api:Invoke", "Effect": "Allow", "Resource": f"{STAGE}/*"}


def test_an_operators_key_has_no_tenant_and_no_null(world: World) -> None:
    answer = world.app.authorizer(event(f"bearer   {world.operator} ", header="authorization"))
    assert set(answer["context"]) == {"keyId", "scope"}
    assert answer["context"]["scope"] == "operator"


@pytest.mark.parametrize(
    "authorization",
    [
        None, "", "Bearer", "Bearer ", "Basic abc", "Bearer dk_", "Bearer dk_x_y", "Bearer {other}", "Bearer é",
        "Bearer " + "x" * 5000, "{token}", "Token {token}", "Bearer {token} {token}", "Bearer {token}x",
        "Bearer {token_short}", "Bearer {wrong_secret}", "Bearer {unknown}", "Bearer {upper}", "Bearer\x00{token}",
    ],
)  # fmt: skip
def test_anything_else_is_unauthorized(memory: World, authorization: str | None) -> None:
    token = memory.tenant().token
    prefix, identity, secret = token.split("_")
    shapes = {
        "token": token, "token_short": token[:-1], "other": "sk-1234", "upper": token.upper(),
        "wrong_secret": f"{prefix}_{identity}_{secret[::-1]}", "unknown": f"{prefix}_{identity[::-1]}_{secret}",
    }  # fmt: skip
    given = None if authorization is None else authorization.format(**shapes)
    with pytest.raises(Exception, match=r"^Unauthorized$"):
        memory.app.authorizer(event(given))


@pytest.mark.parametrize("names", [("Authorization", "Authorization"), ("Authorization", "authorization")])
def test_of_two_keys_neither_counts(memory: World, names: tuple[str, str]) -> None:
    """A front and a function may each read another one of the two."""
    tokens = [f"Bearer {memory.tenant().token}", f"Bearer {memory.operator}"]
    both: dict[str, list[str]] = {}
    for name, token in zip(names, tokens, strict=True):
        both.setdefault(name, []).append(token)
    asked = {**event(None), "headers": {name: sent[-1] for name, sent in both.items()}, "multiValueHeaders": both}
    with pytest.raises(Exception, match=r"^Unauthorized$"):
        memory.app.authorizer(asked)


def test_revoked_expired_and_unknown_keys_look_alike(memory: World) -> None:
    tenant = memory.tenant()
    identity = "key_" + tenant.token.split("_")[1]
    keys.revoke_key(memory.core, BOOT, identity)
    for token in (tenant.token, "dk_01JBM2YPQ8A2C4E6G1J3K5M7NP_" + "x" * 43):
        with pytest.raises(Exception, match=r"^Unauthorized$") as refusal:
            memory.app.authorizer(event(f"Bearer {token}"))
        assert refusal.value.__cause__ is None


def test_no_log_line_carries_a_token(memory: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = memory.tenant().token
    secret = token.rpartition("_")[2]
    memory.app.authorizer(event(f"Bearer {token}"))
    with pytest.raises(Exception, match="Unauthorized"):
        memory.app.authorizer(event(f"Bearer {token}x"))
    assert "refused" in caplog.text
    assert all(secret not in str(record.__dict__) for record in caplog.records)


def test_a_store_that_fails_is_no_wrong_key(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*_: Any) -> None:
        raise ProviderUnavailable("The store did not answer.")

    token = memory.tenant().token
    monkeypatch.setattr(memory.store, "get", down)
    with pytest.raises(ProviderUnavailable):
        memory.app.authorizer(event(f"Bearer {token}"))


def remembered(world: World, token: str, method: str, path: str, body: Any = None) -> int:
    """The status of a call that the gateway lets through because it remembers the key."""
    context = world.app.authorizer(event(f"Bearer {token}"))["context"]
    identity = KeyId(context["keyId"])
    keys.revoke_key(world.core, BOOT, identity)
    call = world.event(method, path, body)
    call["requestContext"]["authorizer"] = context
    status: int = world.app.serve(call)["statusCode"]
    return status


def test_a_revocation_acts_at_once_where_operators_decide(world: World) -> None:
    made = keys.create_key(world.core, world.peppers, BOOT, "second", KeyScope.OPERATOR)
    assert remembered(world, made.token, "POST", "/v1/orgs", {"name": "x"}) == 401


def test_a_revocation_acts_within_the_gateways_memory_elsewhere(world: World) -> None:
    tenant = world.tenant()
    assert remembered(world, tenant.token, "GET", "/v1/sandboxes") == 200


@pytest.mark.parametrize(
    "context",
    [
        None, {}, {"keyId": "key_1", "scope": "operator"}, {"scope": "operator"},
        {"keyId": "key_01JBM2YPQ8A2C4E6G1J3K5M7NP"}, {"keyId": "key_01JBM2YPQ8A2C4E6G1J3K5M7NP", "scope": "root"},
        {"keyId": "key_01JBM2YPQ8A2C4E6G1J3K5M7NP", "scope": "tenant"},
        {"keyId": "key_01JBM2YPQ8A2C4E6G1J3K5M7NP", "scope": "tenant", "org": "org_x"},
        {"keyId": "key_01JBM2YPQ8A2C4E6G1J3K5M7NP", "scope": "tenant", "project": "proj_x"},
    ],
)  # fmt: skip
def test_half_a_context_is_nobody(memory: World, context: Any) -> None:
    call = memory.event("GET", "/v1/sandboxes")
    call["requestContext"]["authorizer"] = context
    assert memory.app.control(call)["statusCode"] == 401


def test_an_invented_operator_does_not_pass_where_the_key_is_read_again(memory: World) -> None:
    call = memory.event("GET", "/v1/orgs")
    invented = {"keyId": "key_01JBM2YPQ8A2C4E6G1J3K5M7NP", "scope": "operator"}
    call["requestContext"]["authorizer"] = invented
    assert memory.app.admin(call)["statusCode"] == 401


def test_a_tenants_key_with_a_context_that_says_operator_stays_a_tenants(memory: World) -> None:
    call = memory.event("GET", "/v1/orgs")
    identity = "key_" + memory.tenant().token.split("_")[1]
    call["requestContext"]["authorizer"] = {"keyId": identity, "scope": "operator"}
    assert memory.app.admin(call)["statusCode"] == 403
