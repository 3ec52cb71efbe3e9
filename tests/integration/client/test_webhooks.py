"""Webhooks by the client: made, told of, and their secrets shown once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from differently import Client
from differently.errors import InvalidState, NotFound
from tests.support.api import World
from tests.support.client import WorldTransport, client_of

URL = "https://hooks.example.com/differently?key=1"


@pytest.fixture
def world() -> World:
    made = World()
    made.pool()
    return made


@pytest.fixture
def client(world: World) -> Iterator[Client]:
    made, _ = client_of(world, world.tenant().token)
    with made:
        yield made


def test_a_secret_is_shown_once(client: Client) -> None:
    made = client.webhooks.create(URL, events=["sandbox.*"], description="to the team")
    rotated = client.webhooks.rotate(made.id, grace_seconds=60)
    assert made.secret.startswith("whsec_")
    assert rotated.secret not in ("", made.secret)
    found = client.webhooks.get(made.id)
    assert (found.url, found.events, found.secrets) == (URL, ["sandbox.*"], 2)
    for told in (repr(made), repr(rotated), repr(found.to_dict()), repr(client.webhooks.list())):
        assert made.secret not in told
        assert rotated.secret not in told


def test_one_is_changed_switched_off_and_removed(client: Client) -> None:
    made = client.webhooks.create(URL)
    assert client.webhooks.update(made.id, events=["project.*"]).events == ["project.*"]
    off = client.webhooks.update(made.id, enabled=False)
    assert (off.enabled, off.disabled.code if off.disabled else None) == (False, "asked")
    with pytest.raises(InvalidState):
        client.webhooks.test(made.id)
    assert client.webhooks.update(made.id, enabled=True).enabled
    client.webhooks.delete(made.id)
    assert client.webhooks.list() == []
    with pytest.raises(NotFound):
        client.webhooks.get(made.id)


def test_what_is_sent_is_listed_and_sent_again(client: Client, world: World) -> None:
    made = client.webhooks.create(URL)
    tried = client.webhooks.test(made.id)
    world.settle()
    (delivered,) = client.webhooks.deliveries(made.id, status=["delivered"])
    assert (delivered.id, delivered.type, delivered.tries) == (tried.id, "webhook.test", 1)
    assert list(client.webhooks.deliveries(made.id, status=["failed"])) == []
    assert client.webhooks.redeliver(made.id, tried.id).status in ("pending", "delivered")
    world.settle()
    assert len(world.receivers.requests) == 2
    assert client.webhooks.delivery(made.id, tried.id).status == "delivered"
    since = world.clock.now() - timedelta(hours=1)
    assert client.webhooks.replay(made.id, since).from_ == since


def test_a_create_whose_answer_was_lost_is_not_sent_again(client: Client) -> None:
    """It would be told of everything twice, with a secret that nobody has."""
    transport = client._transport._http._transport
    assert isinstance(transport, WorldTransport)

    def lose(request: httpx.Request, response: httpx.Response) -> Any:
        raise httpx.ReadError("reset")

    transport.after = lose
    with pytest.raises(Exception, match="broke off"):
        client.webhooks.create(URL)
    transport.after = lambda request, response: None
    assert len(client.webhooks.list()) == 1


def test_operators_have_the_installations_own(world: World, client: Client) -> None:
    tenant = world.tenant("another")
    operator, _ = client_of(world, world.operator)
    with operator:
        own = operator.webhooks.create(URL)
        theirs = operator.webhooks.create(URL, org=tenant.org)
        assert [found.id for found in operator.webhooks.list()] == [own.id]
        assert [found.id for found in operator.webhooks.list(org=tenant.org)] == [theirs.id]
    assert client.webhooks.list() == []
