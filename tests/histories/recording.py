"""Clients in threads of their own call the real API, over a store that loses answers, and write down what they saw."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Any

from differently_core.model.sandbox import GONE
from differently_core.operations import sweep
from differently_core.runtime.ids import SystemIds
from differently_core.store.ports import Action, Outcome, Store, StoreThrottled, StoreUnavailable
from tests.support.api import Reply, Tenant, World

from .model import Call, Kind, Told

CLIENTS = 8
KEYS = 12
LIMIT = 6
"""Sandboxes at once: fewer than there are keys, so that quota is fought for as well."""
LOST = 0.04
GONE_STATUSES = frozenset(status.value for status in GONE)
REFUSALS = frozenset({"quota_exceeded", "queue_full", "insufficient_capacity"})
WORKERS = 2


class Losing:
    """A store whose answers get lost, before the write or after it; and which others get a word in between."""

    def __init__(self, store: Store, chance: random.Random) -> None:
        self._store = store
        self._chance = chance
        self.calm = True

    def transact(self, actions: Sequence[Action]) -> Outcome:
        drawn = 1.0 if self.calm else self._chance.random()
        if drawn < LOST / 2:
            raise StoreUnavailable("No answer.")
        outcome = self._store.transact(actions)
        if drawn < LOST:
            raise StoreUnavailable("No answer.")
        return outcome

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def give_way(actions: Sequence[Action]) -> None:
    """Between the judging and the writing of a transaction: another thread may begin one of its own."""
    time.sleep(0)


class Recording:
    """One control plane, one organization, and what its clients saw of each key."""

    def __init__(self, seed: int, store: Store) -> None:
        self.chance = random.Random(seed)
        self.store = Losing(store, random.Random(seed + 1))
        self.world = World(self.store, ids=SystemIds)
        self.world.pool(max_concurrency=1_000)
        self.tenant: Tenant = self.world.tenant()
        self._set_limit()
        self.histories: defaultdict[str, list[Call]] = defaultdict(list)
        self.uses: list[tuple[float, int]] = []
        """Reads of the quota: when each ended, and what it said is held."""
        self.known: dict[str, list[str]] = {f"key-{number}": [] for number in range(KEYS)}
        self.faults: list[str] = []
        self._moments = itertools.count()
        self._labels = itertools.count()
        self._over = threading.Event()

    def _set_limit(self) -> None:
        path = f"/v1/orgs/{self.tenant.org}/quota"
        assert self.world.call("PUT", path, {"maxConcurrent": LIMIT}, token=self.world.operator).status == 200

    def run(self, calls: int) -> None:
        """Each client makes so many calls; then everything is deleted, without faults."""
        self.store.calm = False
        clients = [
            threading.Thread(target=self._guarded, args=(lambda number=number: self._client(number, calls),))
            for number in range(CLIENTS)
        ]
        workers = [threading.Thread(target=self._guarded, args=(self._worker,)) for _ in range(WORKERS)]
        for thread in (*clients, *workers):
            thread.start()
        for thread in clients:
            thread.join()
        self._over.set()
        for thread in workers:
            thread.join()
        self.store.calm = True
        self._end()

    def _guarded(self, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:
            self.faults.append(f"{type(error).__name__}: {error}")

    # Clients.

    def _client(self, number: int, calls: int) -> None:
        chance = random.Random(self.chance.random() * 1e9 + number)
        for _ in range(calls):
            key = chance.choice(list(self.known))
            sandboxes = self.known[key]
            drawn = chance.random()
            if drawn < 0.03:
                self._look_at_quota()
            elif not sandboxes or drawn < 0.3:
                self._create(number, key, chance)
            else:
                recent = sandboxes[-2:]
                self._use(number, key, chance.choice(recent), chance)

    def _create(self, client: int, key: str, chance: random.Random) -> None:
        body = chance.choice("0001")
        asked = {"priority": int(body), "queueTimeoutSeconds": 0} if chance.random() < 0.2 else {"priority": int(body)}
        body += "!" if len(asked) == 2 else ""
        began, ended, reply = self._call("POST", "/v1/sandboxes", asked, chance, **{"Idempotency-Key": key})
        told, sandbox = self._judge_create(reply)
        if sandbox and sandbox not in self.known[key]:
            self.known[key].append(sandbox)
        self._note(key, Call(client, Kind.CREATE, told, began, ended, sandbox, body))

    def _judge_create(self, reply: Reply | None) -> tuple[Told, str]:
        if reply is None:
            return Told.UNKNOWN, ""
        told = reply.json()
        if reply.status < 300:
            return (Told.MADE if reply.status == 202 else Told.REPLAYED), str(told["id"])
        if reply.code == "idempotency_conflict":
            return Told.CONFLICT, str(told["error"]["details"]["sandboxId"])
        assert reply.code in REFUSALS, told
        return Told.REFUSED, ""

    def _use(self, client: int, key: str, sandbox: str, chance: random.Random) -> None:
        path = f"/v1/sandboxes/{sandbox}"
        match chance.choices((Kind.GET, Kind.UPDATE, Kind.DELETE), (5, 4, 1))[0]:
            case Kind.GET:
                began, ended, reply = self._call("GET", path, None, chance)
                shown = None if reply is None else reply.json()
                if shown is not None:
                    told = Told.GONE if shown["status"] in GONE_STATUSES else Told.LIVE
                    label = shown.get("labels", {}).get("n")
                    self._note(key, Call(client, Kind.GET, told, began, ended, sandbox, label=label))
            case Kind.UPDATE:
                label = str(next(self._labels))
                began, ended, reply = self._call("PATCH", path, {"labels": {"n": label}}, chance)
                told = Told.UNKNOWN if reply is None else Told.DONE if reply.status == 200 else Told.GONE
                assert told is not Told.GONE or (reply is not None and reply.status == 409), reply
                self._note(key, Call(client, Kind.UPDATE, told, began, ended, sandbox, label=label))
            case Kind.DELETE:
                began, ended, reply = self._call("DELETE", path, None, chance)
                told = Told.UNKNOWN if reply is None else Told.DONE
                assert reply is None or reply.status in (200, 202), reply
                self._note(key, Call(client, Kind.DELETE, told, began, ended, sandbox))

    def _call(
        self, method: str, path: str, body: Any, chance: random.Random, **headers: str
    ) -> tuple[float, float, Reply | None]:
        """An answer of 503 leaves it open whether the call was made; so does one that never comes."""
        began = next(self._moments)
        reply = self.world.call(method, path, body, token=self.tenant.token, headers=headers)
        reply.raw  # noqa: B018  # an answer is over when it is read
        ended = next(self._moments)
        assert reply.status != 500, reply.raw
        if (reply.status > 500 and reply.code not in REFUSALS) or chance.random() < LOST:
            return began, inf, None
        return began, ended, reply

    def _look_at_quota(self) -> None:
        path = f"/v1/orgs/{self.tenant.org}/quota"
        reply = self.world.call("GET", path, token=self.world.operator)
        if reply.status == 200:
            self.uses.append((next(self._moments), int(reply.json()["used"]["concurrent"])))

    def _note(self, key: str, call: Call) -> None:
        self.histories[key].append(call)

    # What works behind the API.

    def _worker(self) -> None:
        while not self._over.is_set():
            try:
                message = self.world.mail.messages.popleft()
            except IndexError:
                self.world.clock.advance(0.05)
                with suppress(StoreThrottled, StoreUnavailable):
                    sweep.sweep(self.world.core)
                time.sleep(0.001)
                continue
            with suppress(StoreThrottled, StoreUnavailable):
                self.world.deliver_one(*message)

    def _end(self) -> None:
        for sandbox in [each for ids in self.known.values() for each in ids]:
            self.world.call("DELETE", f"/v1/sandboxes/{sandbox}", token=self.tenant.token)
        listed = self.world.call("GET", "/v1/sandboxes?limit=100", token=self.tenant.token).json()["items"]
        for sandbox in listed:  # made by calls whose answers were lost
            self.world.call("DELETE", f"/v1/sandboxes/{sandbox['id']}", token=self.tenant.token)
        for _ in range(30):
            self.world.pass_time(60)
