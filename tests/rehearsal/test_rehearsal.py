"""A whole installation, deployed as an operator deploys one, used over HTTP, changed under load, destroyed.

The tests stand in the order of that story and share the installation; the last one takes it down.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from differently_api.route import Access, Group
from differently_api.routes import ROUTES
from differently_infra.functions import FUNCTIONS
from tests.rehearsal.cloud import Cloud
from tests.rehearsal.stage import Stage, Tenant, until

REAL = {"allowedPools": ["real"]}
SLOW = {"allowedPools": ["slow"]}
CLOCK_SECONDS_MAX = 100.0
"""A rule of one minute fires within one, and what it starts takes a while."""


def test_every_stack_is_there(stage: Stage) -> None:
    assert set(stage.stacks()) == {f"Differently-{part}" for part in ("Api", "Data", "Secrets", "Workers", "Workflow")}
    assert set(stage.stacks().values()) == {"CREATE_COMPLETE"}
    assert set(stage.functions()) == set(FUNCTIONS)


def test_the_first_operator_key_is_made_once(stage: Stage) -> None:
    with pytest.raises(AssertionError, match="has an operator key already"):
        stage.cloud.admin("bootstrap")


@pytest.mark.parametrize("path", ["/healthz", "/version", "/openapi.json"])
def test_public_routes_need_no_key(stage: Stage, path: str) -> None:
    with stage.http(None) as nobody:
        assert nobody.get(path).status_code == 200


@pytest.mark.parametrize("authorization", [None, "Bearer nothing", "Bearer dk_01ARZ3NDEKTSV4RRFFQ69G5FAV_" + "x" * 43])
def test_without_a_good_key_nothing_is_answered(stage: Stage, authorization: str | None) -> None:
    with stage.http(None) as nobody:
        answer = nobody.get("/v1/sandboxes", headers={"Authorization": authorization} if authorization else {})
    assert answer.status_code == 401


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_route_is_reached_on_its_function(stage: Stage, pools: dict[str, str], route: Any) -> None:
    """With a body and ids that no route takes, so nothing changes: what answers is the function, not the gateway."""
    path = route.path
    for name in route.params:
        path = path.replace(f"{{{name}}}", "nothing-of-this-name")
    with stage.http(stage.key if route.access is not Access.PUBLIC else None) as caller:
        answer = caller.request(route.method.value, path, content=b"[", params={"nothing": "of this name"})
    assert answer.status_code in {400, 404, 405, 409, 422}, answer.text
    assert answer.json()["error"]["code"] != "method_not_allowed"
    assert answer.headers["X-Request-Id"] == answer.json()["error"]["requestId"]
    assert route.group in Group


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/", 404, "not_found"),
        ("PUT", "/v1/orgs", 405, "method_not_allowed"),
        ("DELETE", "/v1/sandboxes", 405, "method_not_allowed"),
        ("GET", "/v1/sandboxes/x/exec", 405, "method_not_allowed"),
    ],
)
def test_what_no_route_matches_is_answered_as_everywhere(
    stage: Stage, method: str, path: str, status: int, code: str
) -> None:
    with stage.http(None) as nobody:
        answer = nobody.request(method, path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def test_a_tenant_s_key_opens_no_operator_s_route(tenant: Tenant) -> None:
    answer = tenant.http.get("/v1/orgs")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")


def test_a_sandbox_lives_from_its_create_to_its_end(tenant: Tenant) -> None:
    """Worker by asynchronous invoke, data by its route, both through a plugin to real commands."""
    sandbox = tenant.create(placement=REAL, env={"GREETING": "hello"})
    tenant.comes_to(sandbox, "running")
    ran = tenant.http.post(f"/v1/sandboxes/{sandbox}/exec", json={"command": "printf %s $GREETING; exit 3"}).json()
    assert (ran["exitCode"], ran["stdout"]) == (3, "hello")
    lines = tenant.http.post(
        f"/v1/sandboxes/{sandbox}/exec", params={"stream": "true"}, json={"command": "echo one; echo two"}
    )
    assert [json.loads(line) for line in lines.text.splitlines() if line][-1]["exitCode"] == 0
    tenant.delete(sandbox)
    waited = tenant.http.get(f"/v1/sandboxes/{sandbox}/wait", params={"for": "terminated", "timeoutSeconds": 20})
    assert waited.json()["status"] == "terminated"


def test_a_large_file_goes_by_the_staging_bucket(tenant: Tenant) -> None:
    """With an address that a function's own role signed, and nothing left in the bucket."""
    sandbox = tenant.create(placement=REAL)
    tenant.comes_to(sandbox, "running")
    content = os.urandom(6 * 1024 * 1024)
    digest = hashlib.sha256(content).hexdigest()
    announced = {"size": len(content), "sha256": digest}
    begun = tenant.http.post(f"/v1/sandboxes/{sandbox}/files/uploads", json=announced).json()
    assert httpx.put(begun["url"], headers=begun["headers"], content=content[:-1], trust_env=False).status_code != 200
    assert httpx.put(begun["url"], headers=begun["headers"], content=content, trust_env=False).status_code == 200
    query = {"path": "large.bin", "upload": begun["id"]}
    written = tenant.http.put(f"/v1/sandboxes/{sandbox}/files/content", params=query)
    assert written.status_code == 200, written.text
    told = tenant.http.post(f"/v1/sandboxes/{sandbox}/exec", json={"command": "sha256sum large.bin"}).json()
    assert told["stdout"].split()[0] == digest
    assert httpx.head(begun["url"].partition("?")[0], trust_env=False).status_code == 404
    tenant.delete(sandbox)


def test_a_credential_is_sealed_by_the_key_of_the_installation(stage: Stage) -> None:
    with stage.http(stage.key) as operator:
        answer = operator.put("/v1/admin/secrets/provider", json={"fields": {"token": "canary-credential"}})
        assert answer.status_code in {200, 201}, answer.text
        assert operator.get("/v1/admin/secrets/provider").status_code == 200
    table = stage.functions()["admin"]["Environment"]["Variables"]["CONFIG_TABLE"]
    rows = json.dumps(stage.cloud.client("dynamodb").scan(TableName=table)["Items"], default=str)
    assert "SECRET#provider" in rows
    assert "canary-credential" not in rows


def test_what_waits_is_admitted_through_the_queue(stage: Stage, project: tuple[str, str], tenant: Tenant) -> None:
    quota = f"/v1/projects/{project[0]}/quota"
    with stage.http(stage.key) as operator:
        assert operator.put(quota, json={"maxConcurrent": 1}).status_code == 200
        try:
            first, second = tenant.create(placement=REAL), tenant.create(placement=REAL)
            tenant.comes_to(first, "running")
            assert tenant.status(second) == "queued"
            tenant.delete(first)
            tenant.comes_to(second, "running")
            tenant.delete(second)
        finally:
            assert operator.put(quota, json={"maxConcurrent": 20}).status_code == 200
    assert '"message":"dispatched"' in stage.lines("dispatch")


def test_a_slow_create_is_followed_by_the_workflow_until_it_runs(stage: Stage, tenant: Tenant) -> None:
    sandbox = tenant.create(placement=SLOW)
    name = until(lambda: next((name for name in stage.executions() if name.startswith(sandbox)), None), "it starts")
    tenant.comes_to(sandbox, "running")
    until(lambda: stage.executions()[name] == "SUCCEEDED", "it ends", 30)
    tenant.delete(sandbox)


def test_the_clock_starts_probes_and_reconciliation_by_itself(stage: Stage, pools: dict[str, str]) -> None:
    def looked_at(operator: httpx.Client) -> str:
        return str(operator.get("/v1/admin/pools/real").json()["health"]["at"])

    with stage.http(stage.key) as operator:
        before = looked_at(operator)
        until(lambda: looked_at(operator) > before, "a probe that nobody asked for", CLOCK_SECONDS_MAX)
    until(lambda: '"message":"reconciled"' in stage.lines("reconcile"), "a pass over a pool", CLOCK_SECONDS_MAX)


def test_a_lost_message_is_found_by_the_sweep(stage: Stage, tenant: Tenant) -> None:
    """The worker takes nothing for a while, as after a deployment that went wrong: its message is gone."""
    lambda_ = stage.cloud.client("lambda")
    lambda_.put_function_concurrency(FunctionName="differently-worker", ReservedConcurrentExecutions=0)
    try:
        sandbox = tenant.create(placement=REAL)
        time.sleep(2)
        assert tenant.status(sandbox) == "provisioning"
    finally:
        lambda_.delete_function_concurrency(FunctionName="differently-worker")
    tenant.comes_to(sandbox, "running", CLOCK_SECONDS_MAX)
    tenant.delete(sandbox)


def test_metrics_are_in_the_log_as_cloudwatch_reads_them(stage: Stage, project: tuple[str, str]) -> None:
    found = [json.loads(line) for line in stage.lines("control").splitlines() if '"_aws"' in line]
    (described,) = found[0]["_aws"]["CloudWatchMetrics"]
    assert described["Namespace"] == "Differently"
    assert {entry["Name"] for entry in described["Metrics"]} >= {"Requests", "RequestDuration"}
    everything = "\n".join(stage.lines(name) for name in FUNCTIONS)
    for secret in (stage.key, project[1], "canary-credential"):
        assert secret not in everything


def test_it_is_updated_while_it_is_used(stage: Stage, cloud: Cloud, configuration: Path, tenant: Tenant) -> None:
    """A changed configuration, deployed under load: what it changes has changed, and calls go on."""
    sandbox = tenant.create(placement=REAL)
    tenant.comes_to(sandbox, "running")
    configuration.write_text(f'{configuration.read_text()}[logs]\nlevel = "DEBUG"\n')
    with calling(lambda: tenant.http.get(f"/v1/sandboxes/{sandbox}")) as statuses:
        cloud.cdk("deploy", "--all", "--require-approval", "never", config=configuration)
    assert len(statuses) > 10
    # The emulator ends a function's process under the call that it serves; Lambda lets it finish.
    assert set(statuses) <= {200, 502}
    assert statuses.count(502) <= len(FUNCTIONS)
    assert statuses[-1] == 200
    assert stage.functions()["control"]["Environment"]["Variables"]["LOG_LEVEL"] == "DEBUG"
    ran = tenant.http.post(f"/v1/sandboxes/{sandbox}/exec", json={"command": "echo still here"}).json()
    assert ran["stdout"] == "still here\n"
    tenant.delete(sandbox)


@contextlib.contextmanager
def calling(call: Callable[[], httpx.Response]) -> Iterator[list[int]]:
    """Call again and again meanwhile; the statuses."""
    statuses: list[int] = []
    stopping = threading.Event()

    def run() -> None:
        while not stopping.is_set():
            try:
                statuses.append(call().status_code)
            except httpx.HTTPError:
                statuses.append(0)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield statuses
    finally:
        stopping.set()
        thread.join(60)


def test_what_the_configuration_declares_is_brought_in_and_then_left(
    stage: Stage, cloud: Cloud, configuration: Path
) -> None:
    """What `make deploy` does last, as whoever deploys: twice, and around a change by the API."""
    text = configuration.read_text()
    declared = '[templates.python]\nresources = { cpu = 2 }\n[policies.global]\ndeniedPools = ["nowhere"]\n'
    configuration.write_text(f"{text}\n{declared}")
    with pytest.raises(AssertionError, match="create   template python"):
        cloud.admin("diff", config=configuration)
    assert "create   template python" in cloud.admin("apply", config=configuration)
    assert cloud.admin("apply", config=configuration).split()[::3] == ["same", "same"]
    with stage.http(stage.key) as operator:
        assert operator.get("/v1/templates/python").json()["resources"]["cpu"] == 2
        operator.put("/v1/templates/python", json={"resources": {"cpu": 1}})
        assert "changed by the API since" in cloud.admin("apply", config=configuration)
        assert operator.get("/v1/templates/python").json()["resources"]["cpu"] == 2
    configuration.write_text(text)
    assert "left     template python" in cloud.admin("apply", config=configuration)


def test_nothing_is_left_when_it_is_destroyed(stage: Stage, cloud: Cloud, configuration: Path) -> None:
    cloud.cdk("destroy", "--all", "--force", config=configuration)
    assert stage.stacks() == {}
    assert stage.functions() == {}
    assert not [name for name in cloud.client("dynamodb").list_tables()["TableNames"] if "Differently" in name]
    assert not cloud.client("events").list_rules(NamePrefix="differently")["Rules"]
    assert not cloud.client("sqs").list_queues(QueueNamePrefix="differently").get("QueueUrls")
