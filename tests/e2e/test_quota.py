"""A hundred creates at once against a quota of ten: never more than ten, and none is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.plane import Client, Plane, at_once, until

CREATES = 100
QUOTA = 10
ACTIVE = ("provisioning", "running", "pausing", "resuming", "stopping", "starting")
ALL_RAN_SECONDS_MAX = 60.0


@pytest.fixture
def tenant(plane: Plane) -> Iterator[Client]:
    """A project of its own, with a quota of ten set by an operator."""
    with plane.client(operator=True) as operator:
        org = operator.made("/v1/orgs", {"name": "crowd"})["id"]
        project = operator.made(f"/v1/orgs/{org}/projects", {"name": "crowd"})["id"]
        key = operator.made("/v1/api-keys", {"name": "crowd", "scope": "tenant", "projectId": project})["token"]
        set_quota = operator.http.put(f"/v1/projects/{project}/quota", json={"maxConcurrent": QUOTA})
        assert set_quota.status_code == 200, set_quota.text
    with plane.client(key=key, project=project) as client:
        yield client


class Sampler:
    """Looks at list and counter as fast as they answer, until told to stop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.active: list[int] = []
        self.counted: list[int] = []

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.active.append(len(self._client.list(*ACTIVE)))
            self.counted.append(self._client.quota()["used"]["concurrent"])

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._thread.join(30)


def test_a_hundred_creates_at_once_never_pass_a_quota_of_ten_and_all_run(plane: Plane, tenant: Client) -> None:
    sampler = Sampler(tenant)
    with sampler.at_work():
        created = at_once(50, lambda number: str(tenant.create(labels={"number": str(number)})["id"]), range(CREATES))
        assert len(set(created)) == CREATES
        ran = delete_what_runs_until_all_ran(tenant, created)
    assert ran == set(created)
    assert max(sampler.active) == QUOTA
    assert max(sampler.counted) == QUOTA
    until(lambda: tenant.quota()["used"]["concurrent"] == 0, "everything given back")
    assert not set(created) & set(plane.instances())


def delete_what_runs_until_all_ran(client: Client, created: list[str]) -> set[str]:
    ran: set[str] = set()

    def step() -> bool:
        for found in client.list("running"):
            ran.add(found["id"])
            client.delete(found["id"])
        return len(ran) == len(created)

    until(step, f"all {len(created)} ran", ALL_RAN_SECONDS_MAX)
    return ran
