"""A hundred creates at once against a quota of ten: never more than ten, and none is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.e2e.plane import Client, Plane, at_once, until

CREATES = 100
QUOTA = 10
ACTIVE = ("provisioning", "running", "pausing", "resuming", "stopping", "starting")
ALL_RAN_SECONDS_MAX = 60.0


class Sampler:
    """Looks at list and counter as fast as they answer, until told to stop."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.active: list[int] = []
        self.counted: list[int] = []

    def _run(self) -> None:
        with self._plane.client() as client:
            while not self._stopping.is_set():
                self.active.append(len(client.list(*ACTIVE)))
                self.counted.append(client.quota()["used"]["concurrent"])

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._thread.join(30)


def set_quota(plane: Plane, sandboxes: int) -> None:
    with plane.client(operator=True) as operator:
        answer = operator.http.put(f"/v1/projects/{operator.project}/quota", json={"maxConcurrent": sandboxes})
        assert answer.status_code == 200, answer.text


def test_a_hundred_creates_at_once_never_pass_a_quota_of_ten_and_all_run(plane: Plane, client: Client) -> None:
    set_quota(plane, QUOTA)
    sampler = Sampler(plane)
    with sampler.at_work():
        created = at_once(50, lambda number: client.create(labels={"number": str(number)})["id"], range(CREATES))
        assert len(set(created)) == CREATES
        ran = delete_what_runs_until_all_ran(client, created)
    assert ran == set(created)
    assert max(sampler.active) == QUOTA
    assert max(sampler.counted) == QUOTA
    until(lambda: client.quota()["used"]["concurrent"] == 0, "everything given back")
    assert plane.directories() == []


def delete_what_runs_until_all_ran(client: Client, created: list[str]) -> set[str]:
    ran: set[str] = set()

    def step() -> bool:
        running: list[dict[str, Any]] = client.list("running")
        for found in running:
            ran.add(found["id"])
            client.delete(found["id"])
        return len(ran) == len(created)

    until(step, f"all {len(created)} ran", ALL_RAN_SECONDS_MAX)
    return ran
