"""One deployment for the whole rehearsal: deployed at its begin, destroyed by its last test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from differently_infra.packaging import build, for_host
from tests.rehearsal.cloud import ACCOUNT, REGION, Cloud
from tests.rehearsal.stage import Stage, Tenant, plugin, real_commands, slow_starts
from tests.support.emulator import PYTHON, Emulator

SLOW_SECONDS = 6.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and "test_refusals" not in item.path.name:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default, but for what the emulator cannot do (docs/explanation/rehearsal.md) and for the end of it all."""
    path = tmp_path_factory.mktemp("configuration") / "deployment.toml"
    path.write_text("keepData = false\n[api]\nstreaming = false\n[alarms]\nenabled = false\n")
    return path


@pytest.fixture(scope="session")
def cloud(emulator: Emulator, tmp_path_factory: pytest.TempPathFactory) -> Cloud:
    return Cloud(emulator.url, tmp_path_factory.mktemp("home"), build(for_host(str(PYTHON))))


@pytest.fixture(scope="session")
def stage(cloud: Cloud, configuration: Path) -> Stage:
    """Deployed, with the first operator key."""
    cloud.cdk("bootstrap", f"aws://{ACCOUNT}/{REGION}")
    cloud.cdk("deploy", "--all", "--require-approval", "never", config=configuration)
    return Stage(cloud, cloud.admin("bootstrap").strip())


@pytest.fixture(scope="session")
def pools(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Two pools behind plugins on this machine: `real` runs commands, `slow` takes its time to start."""
    installation = stage.cloud.admin("installation").strip()
    with (
        plugin(real_commands(tmp_path_factory.mktemp("sandboxes"), installation)) as real,
        plugin(slow_starts(SLOW_SECONDS, installation)) as slow,
        stage.http(stage.key) as operator,
    ):
        for name, url in (("real", real), ("slow", slow)):
            config = {"endpoint": url, "allowHttp": True, "allowLoopback": True}
            body = {"name": name, "adapter": "remote", "trust": "private", "maxConcurrency": 10, "config": config}
            answer = operator.post("/v1/admin/pools", json=body)
            assert answer.status_code == 201, answer.text
            assert answer.json()["health"]["healthy"] is True, answer.text
        yield {"real": real, "slow": slow}


@pytest.fixture(scope="session")
def project(stage: Stage, pools: dict[str, str]) -> tuple[str, str]:
    """A project and a key of it."""
    with stage.http(stage.key) as operator:
        org = operator.post("/v1/orgs", json={"name": "first"}).json()["id"]
        made = operator.post(f"/v1/orgs/{org}/projects", json={"name": "first"}).json()["id"]
        body = {"name": "first", "scope": "tenant", "projectId": made}
        return made, operator.post("/v1/api-keys", json=body).json()["token"]


@pytest.fixture
def tenant(stage: Stage, project: tuple[str, str]) -> Iterator[Tenant]:
    with stage.http(project[1]) as http:
        yield Tenant(http)
