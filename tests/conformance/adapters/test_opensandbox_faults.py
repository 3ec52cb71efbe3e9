"""What OpenSandbox and the ways to it were seen to do, and what the adapter makes of each."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from differently_adapters.providers.opensandbox import OpenSandboxAdapter, OpenSandboxConfig
from differently_adapters.providers.opensandbox.wire import KEY_INSTALLATION, KEY_SANDBOX
from differently_adapters.testing import a_create_request
from differently_core.contract import (
    AdapterContext,
    CreateRequest,
    EgressAction,
    EgressRules,
    InstanceState,
    Owner,
    Progress,
    SnapshotKind,
    SnapshotRequest,
    SnapshotState,
    Target,
    Transition,
)
from differently_core.errors import (
    BackendError,
    DifferentlyError,
    ExecUnconfirmed,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    PayloadTooLarge,
    ProviderUnavailable,
    SandboxFailed,
    UnsupportedOperation,
)
from differently_core.model import features
from differently_core.model.exec import ExecRequest
from differently_core.runtime.clock import Clock, SystemClock
from tests.conformance.adapters.opensandbox_fake import (
    FakeOpenSandbox,
    answer,
    cut_body,
    drop_after,
    drop_before,
    edit,
    html,
    redirect,
    reflect,
    slow,
)
from tests.conformance.adapters.stand_in.clock import QuickClock
from tests.conformance.adapters.stand_in.http import Reply

API_KEY = "key-of-the-operator"
CREATE = ("POST", "/sandboxes$")
SECONDS = 30.0
Make = Callable[..., OpenSandboxAdapter]


@pytest.fixture(params=["docker"])
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)


on_kubernetes = pytest.mark.parametrize("runtime", ["kubernetes"], indirect=True)


@pytest.fixture
def fake(tmp_path: Path, runtime: str) -> Iterator[FakeOpenSandbox]:
    fake = FakeOpenSandbox(tmp_path, runtime=runtime, api_key=API_KEY, grace_seconds=5.0)
    yield fake
    fake.close()


@pytest.fixture
def make(fake: FakeOpenSandbox) -> Iterator[Make]:
    made: list[OpenSandboxAdapter] = []

    def make(*, api_key: str = API_KEY, clock: Clock | None = None, **config: object) -> OpenSandboxAdapter:
        told = {"apiUrl": f"{fake.url}/v1/", "runtime": fake.runtime, "image": "local/base:dev",
                "allowHttp": True, "allowLoopback": True, **config}  # fmt: skip
        context = AdapterContext(
            "pool", "inst_a", OpenSandboxConfig.model_validate(told), clock or QuickClock(), {"api_key": api_key}
        )
        made.append(OpenSandboxAdapter(context))
        return made[-1]

    yield make
    for adapter in made:
        adapter.close()


@pytest.fixture
def adapter(make: Make) -> OpenSandboxAdapter:
    return make()


def wanted(sandbox: str = "sbx_a", **changes: Any) -> CreateRequest:
    return dataclasses.replace(a_create_request(Owner("inst_a", sandbox)), **changes)


OWNER = wanted().owner


def created(adapter: OpenSandboxAdapter, **changes: Any) -> Target:
    request = wanted(**changes)
    return Target(request.owner, adapter.create(request, SECONDS).ref)


def bodies(fake: FakeOpenSandbox, method: str = "POST", path: str = "/v1/sandboxes") -> list[Any]:
    return [request.json() for request in fake.requests if (request.method, request.path) == (method, path)]


# Create.


def test_a_create_says_whose_it_is_and_when_it_ends(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    created(adapter, ttl_seconds=3600, env={"A": "1"})
    (sent,) = bodies(fake)
    assert sent == {
        "image": {"uri": "local/base:dev"},
        "entrypoint": ["tail", "-f", "/dev/null"],
        "timeout": 3900,
        "resourceLimits": {"cpu": "1000m", "memory": "512Mi"},
        "env": {"A": "1"},
        "metadata": {"differently-sandbox-id": "sbx_a", "differently-installation": "inst_a"},
    }


def test_the_credential_goes_to_the_server_and_nowhere_else(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    adapter.exec(created(adapter), ExecRequest(command="true"), 100)
    for request in fake.requests:
        direct = request.path.startswith("/box/")
        assert request.headers.get("open-sandbox-api-key") == (None if direct else API_KEY)


def test_a_longer_life_than_the_server_takes_is_had_by_renewing(adapter: OpenSandboxAdapter) -> None:
    target = created(adapter, ttl_seconds=10 * 86_400)
    expires = adapter.get(target).expires_at
    assert expires is not None
    assert expires - SystemClock().now() > timedelta(days=9, hours=23)


def test_what_exists_is_not_made_again(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    assert created(adapter) == created(adapter)
    assert len(bodies(fake)) == 1


@pytest.mark.parametrize(
    "fault", [drop_after, html(), cut_body(40), answer(502, "", effect=True), answer(504, "GATEWAY", effect=True)]
)
def test_a_lost_answer_is_looked_for_and_never_asked_for_again(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter, fault: Any
) -> None:
    fake.expect(*CREATE, fault)
    made = adapter.create(wanted(), SECONDS)
    assert (made.owner, made.state) == (OWNER, InstanceState.RUNNING)
    assert len(bodies(fake)) == fake.count() == 1


def test_an_answer_that_hangs_is_given_up_in_time_and_looked_for(fake: FakeOpenSandbox, make: Make) -> None:
    fake.expect(*CREATE, slow(20.0))
    assert make(clock=SystemClock()).create(wanted(), 1.5).owner == OWNER


@pytest.mark.parametrize("fault", [drop_before, answer(500, "INTERNAL"), answer(504, "")])
def test_a_create_of_which_nothing_is_seen_is_unknown(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter, fault: Any
) -> None:
    fake.expect(*CREATE, fault)
    with pytest.raises(ProviderUnavailable) as unknown:
        adapter.create(wanted(), SECONDS)
    assert not unknown.value.settled


def test_not_ready_in_time_is_this_sandboxs_failure(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    fake.expect(*CREATE, answer(504, "KUBERNETES::POD_READY_TIMEOUT", "not ready"))
    with pytest.raises(SandboxFailed) as failed:
        adapter.create(wanted(), SECONDS)
    assert failed.value.settled  # the server removes it, and it was seen to be gone


def test_not_ready_in_time_is_not_settled_while_something_is_left(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter
) -> None:
    fake.expect(*CREATE, answer(504, "KUBERNETES::POD_READY_TIMEOUT", effect=True))
    with pytest.raises(SandboxFailed) as failed:
        adapter.create(wanted(), SECONDS)
    assert not failed.value.settled


def test_not_ready_in_time_is_not_settled_while_nobody_can_look(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter
) -> None:
    def fails_and_goes_down(*_: Any) -> Reply:
        fake.expect("GET", "/sandboxes$", answer(500, "INTERNAL"))
        return answer(504, "KUBERNETES::POD_READY_TIMEOUT")(*_)

    fake.expect(*CREATE, fails_and_goes_down)
    with pytest.raises(SandboxFailed) as failed:
        adapter.create(wanted(), SECONDS)
    assert not failed.value.settled


def test_labels_that_were_not_kept_are_put_back(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    def unlabelled(go: Callable[[], Reply], *_: Any) -> Reply:
        reply = go()
        fake.sandboxes[json.loads(reply.body)["id"]].metadata = {"theirs": "kept"}
        return reply

    fake.expect(*CREATE, unlabelled)
    target = created(adapter)
    assert fake.sandboxes[target.ref or ""].metadata == {
        "theirs": "kept", KEY_SANDBOX: "sbx_a", KEY_INSTALLATION: "inst_a"
    }  # fmt: skip


def test_one_tenants_failures_are_its_own_and_those_of_all_are_the_servers(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter
) -> None:
    fake.expect(*CREATE, answer(504, "KUBERNETES::POD_READY_TIMEOUT"), times=5)
    for number in range(4):
        with pytest.raises(SandboxFailed):
            adapter.create(wanted(f"sbx_{number}"), SECONDS)
    with pytest.raises(ProviderUnavailable, match="one sandbox after another"):
        adapter.create(wanted("sbx_other", org="org_other"), SECONDS)


def test_an_image_that_cannot_be_pulled_is_no_outage(adapter: OpenSandboxAdapter) -> None:
    with pytest.raises(SandboxFailed, match="could not be pulled") as failed:
        adapter.create(wanted(image="nope/none:1"), SECONDS)
    assert failed.value.settled
    assert "nope/none:1" in str(failed.value.details["provider_message"])


def test_an_entrypoint_that_dies_is_seen_although_the_answer_was_running(make: Make) -> None:
    with pytest.raises(SandboxFailed, match="exited with code 127"):
        make(entrypoint=["/no/such"]).create(wanted(), SECONDS)


def test_a_sandbox_in_which_no_command_runs_yet_is_pending(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    fake.expect("POST", "/command$", drop_before, times=1_000)
    assert adapter.create(wanted(), SECONDS).state is InstanceState.PENDING


@pytest.mark.parametrize(
    ("status", "code", "retry", "seconds"),
    [
        (403, "KUBERNETES::QUOTA_EXCEEDED", {}, None),
        (429, "KUBERNETES::POOL_CAPACITY_EXHAUSTED", {"retry_after": "7"}, 7),
        (429, "", {"retry_after": "Thu, 01 Jan 2099 00:00:00 GMT"}, 86_400),
        (429, "", {"retry_after": "soon"}, None),
    ],
)
def test_no_room_is_no_outage_and_its_advice_is_passed_on(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter, status: int, code: str, retry: Any, seconds: object
) -> None:
    fake.expect(*CREATE, answer(status, code, **retry))
    with pytest.raises(InsufficientCapacity) as full:
        adapter.create(wanted(), SECONDS)
    assert full.value.settled
    assert full.value.details.get("retry_after_seconds") == seconds


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "SANDBOX::INVALID_PARAMETER", InvalidRequest),
        (422, "", InvalidRequest),
        (404, "KUBERNETES::POOL_NOT_FOUND", ProviderUnavailable),
        (404, "FSB::TEMPLATE_NOT_FOUND", ProviderUnavailable),
        (401, "INVALID_API_KEY", ProviderUnavailable),
        (403, "FORBIDDEN", ProviderUnavailable),
        (501, "FSB::API_NOT_SUPPORTED", UnsupportedOperation),
        (409, "KUBERNETES::INVALID_STATE", InvalidState),
    ],
)
def test_a_refusal_is_told_by_its_kind(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter, status: int, code: str, kind: type[DifferentlyError]
) -> None:
    fake.expect(*CREATE, answer(status, code, "no"))
    with pytest.raises(kind) as refused:
        adapter.create(wanted(), SECONDS)
    assert getattr(refused.value, "settled", True)


def test_no_error_repeats_a_secret_that_the_server_reflects(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    fake.expect(*CREATE, reflect(400))
    fake.expect(*CREATE, answer(422, ""), times=0)
    with pytest.raises(InvalidRequest) as refused:
        adapter.create(wanted(env={"TOKEN": "canary-9d81"}), SECONDS)
    told = f"{refused.value} {refused.value.details}"
    assert API_KEY not in told
    assert "canary-9d81" not in told
    assert "[redacted]" in told


def test_a_validation_error_does_not_quote_the_request(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    detail = [{"type": "x", "loc": ["body", "timeout"], "msg": "too short", "input": {"env": {"TOKEN": "canary-9d81"}}}]
    fake.expect(*CREATE, lambda *_: Reply(422, json.dumps({"detail": detail}).encode()))
    with pytest.raises(InvalidRequest) as refused:
        adapter.create(wanted(env={"TOKEN": "canary-9d81"}), SECONDS)
    assert refused.value.details["provider_message"] == "body.timeout: too short"
    assert "canary" not in str(refused.value)


def test_a_redirect_is_not_followed(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    fake.expect("GET", "/sandboxes$", redirect(f"{fake.url}/elsewhere"))
    with pytest.raises(ProviderUnavailable, match="redirect"):
        adapter.health()
    assert all("elsewhere" not in request.path for request in fake.requests)


def test_a_wrong_key_is_an_outage_of_the_pool(make: Make) -> None:
    adapter = make(api_key="another-key")
    for call in (adapter.health, adapter.verify_credential):
        with pytest.raises(ProviderUnavailable, match="refused the API key"):
            call()


@pytest.mark.parametrize("status", [200, 404])
def test_a_page_of_a_gateway_says_nothing_about_a_sandbox(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter, status: int
) -> None:
    """Source: reliability.md F22, an HTML error page."""
    target = created(adapter)
    page = Reply(status, b"<html>not here</html>", {"content-type": "text/html; charset=utf-8"})
    for call in (adapter.get, adapter.delete):
        fake.expect("GET", "/sandboxes/[^/]+$", lambda *_: page)
        fake.expect("DELETE", "/sandboxes/[^/]+$", lambda *_: page, times=int(call == adapter.delete))
        with pytest.raises(ProviderUnavailable, match="a page instead of data"):
            call(target)


@pytest.mark.parametrize(
    "told", ["169.254.169.254/latest", "metadata.google.internal:80", "user@127.0.0.1", "10.1.2.3"]
)
def test_the_server_cannot_send_us_where_the_pool_may_not_go(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter, told: str
) -> None:
    target = created(adapter)
    fake.expect("GET", "/endpoints/", edit(lambda _: {"endpoint": told}))
    with pytest.raises(ProviderUnavailable, match="an address that this pool may not use"):
        adapter.exec(target, ExecRequest(command="true"), 10)


def test_output_that_cannot_be_read_does_not_look_like_a_command_that_did_not_run(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter
) -> None:
    """Once the command has ended, no failure may say that nothing was done."""
    target = created(adapter)
    fake.expect("GET", "/files/download$", drop_before)
    with pytest.raises(ExecUnconfirmed):
        adapter.exec(target, ExecRequest(command="head -c 300000 /dev/zero"), 1_000_000)


def test_without_an_image_nothing_is_sent(fake: FakeOpenSandbox, make: Make) -> None:
    with pytest.raises(InvalidRequest, match="No image"):
        make(image=None).create(wanted(), SECONDS)
    assert bodies(fake) == []


# Lists and states.


def test_a_list_of_many_pages_is_whole_and_holds_only_ours(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    ours = {fake.plant({KEY_SANDBOX: f"sbx_{number}", KEY_INSTALLATION: "inst_a"}).id for number in range(450)}
    fake.plant({KEY_SANDBOX: "sbx_1", KEY_INSTALLATION: "inst_b"})
    fake.plant({})
    assert {instance.ref for instance in adapter.list("inst_a")} == ours


def test_a_filter_that_is_ignored_lets_nothing_foreign_in(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    mine = created(adapter)
    foreign = fake.plant({KEY_SANDBOX: "sbx_a", KEY_INSTALLATION: "inst_b"}).told()

    def unfiltered(page: dict[str, Any]) -> dict[str, Any]:
        return {"items": [foreign, *page["items"]], "pagination": {**page["pagination"], "totalItems": 2}}

    fake.expect("GET", "/sandboxes$", edit(unfiltered), times=2)
    assert [instance.ref for instance in adapter.list("inst_a")] == [mine.ref]
    assert adapter.get(Target(OWNER)).ref == mine.ref


def test_a_list_whose_last_page_fails_is_an_error(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    for number in range(201):
        fake.plant({KEY_SANDBOX: f"sbx_{number}", KEY_INSTALLATION: "inst_a"})

    def second_fails(go: Callable[[], Reply], request: Any, closing: Any) -> Reply:
        return go() if request.one("page") == "1" else Reply(500)

    fake.expect("GET", "/sandboxes$", second_fails, times=10)
    with pytest.raises(BackendError):
        adapter.list("inst_a")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("Unknown", InstanceState.PENDING), ("Allocated", InstanceState.PENDING), ("Pausing", InstanceState.PENDING),
        ("NeverHeardOf", InstanceState.PENDING), ("Stopping", InstanceState.STOPPED),
        ("Terminated", InstanceState.ERROR), ("Failed", InstanceState.ERROR),
    ],
)  # fmt: skip
def test_a_state_is_never_read_as_more_than_it_says(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter, theirs: str, ours: InstanceState
) -> None:
    target = created(adapter)
    fake.sandboxes[target.ref or ""].status = (theirs, "WHY", "because")
    assert adapter.get(target).state is ours
    assert [instance.state for instance in adapter.list("inst_a")] == [ours]
    if ours is not InstanceState.RUNNING:
        with pytest.raises(InvalidState):
            adapter.exec(target, ExecRequest(command="true"), 10)


def test_what_is_being_deleted_is_still_there_until_it_is_gone(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter
) -> None:
    target = created(adapter)
    fake.lingers = True
    adapter.delete(target)
    adapter.delete(target)
    assert [instance.ref for instance in adapter.list("inst_a")] == [target.ref]
    with pytest.raises(InvalidState, match="being deleted"):
        adapter.create(wanted(), SECONDS)
    fake.vanish(target.ref or "")
    with pytest.raises(NotFound):
        adapter.get(target)


def test_a_delete_in_transition_is_not_success(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    target = created(adapter)
    fake.expect("DELETE", "/sandboxes/", answer(409, "KUBERNETES::INVALID_STATE"))
    with pytest.raises(InvalidState):
        adapter.delete(target)


def test_no_address_yet_is_not_gone(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    target = created(adapter)
    fake.expect("GET", "/endpoints/", answer(404, "KUBERNETES::POD_IP_NOT_AVAILABLE"))
    with pytest.raises(ProviderUnavailable):
        adapter.exec(target, ExecRequest(command="true"), 10)


@on_kubernetes
def test_absence_needs_a_second_witness_where_caches_forget(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    target = created(adapter)
    fake.expect("GET", "/sandboxes/[^/]+$", answer(404, "KUBERNETES::SANDBOX_NOT_FOUND"))
    assert adapter.get(target).ref == target.ref


def test_an_ended_sandbox_is_not_renewed(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    target = created(adapter)
    until = SystemClock().now() + timedelta(hours=5)
    assert adapter.renew(target, until) == until
    with pytest.raises(InvalidRequest):
        adapter.renew(target, SystemClock().now() - timedelta(hours=5))
    fake.sandboxes[target.ref or ""].status = ("Failed", "", "")
    with pytest.raises(InvalidState):
        adapter.renew(target, until)


def test_many_are_observed_each_by_itself(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    target = created(adapter)
    here, gone = adapter.observe_many([target, Target(OWNER, "gone")])
    assert getattr(here, "ref", None) == target.ref
    assert isinstance(gone, NotFound)
    fake.up = False
    with pytest.raises(ProviderUnavailable):
        adapter.observe_many([target, target])


# Pause, stop, and what they keep.


def test_a_docker_pause_keeps_the_process_and_names_its_incarnation(adapter: OpenSandboxAdapter) -> None:
    target = created(adapter)
    adapter.exec(target, ExecRequest(command="sleep 600 > /dev/null 2>&1 & echo $! > pid"), 100)
    move = Transition("op_1", adapter.get(target).incarnation)
    paused = adapter.pause(target, move, SECONDS)
    assert (paused.progress, paused.instance.state) == (Progress.DONE, InstanceState.PAUSED)
    assert adapter.pause(target, dataclasses.replace(move, observe_only=True), SECONDS).progress is Progress.DONE
    with pytest.raises(InvalidState):
        adapter.exec(target, ExecRequest(command="true"), 10)
    with pytest.raises(InvalidState):
        adapter.resume(target, Transition("op_2", "another"), SECONDS)
    resumed = adapter.resume(target, Transition("op_2", move.incarnation), SECONDS)
    assert resumed.progress is Progress.DONE
    assert adapter.exec(target, ExecRequest(command="kill -0 $(cat pid)"), 10).exit_code == 0


def test_a_pause_whose_answer_is_lost_is_observed(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    target = created(adapter)
    fake.expect("POST", "/pause$", drop_after)
    assert adapter.pause(target, Transition("op", ""), SECONDS).progress is Progress.DONE


@on_kubernetes
def test_a_stop_keeps_the_disk_and_start_brings_it_back(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    target = created(adapter)
    adapter.exec(target, ExecRequest(command="echo kept > kept"), 100)
    for _ in range(2):
        assert adapter.stop(target, SECONDS).state is InstanceState.STOPPED
    for _ in range(2):
        assert adapter.start(target, SECONDS).state is InstanceState.RUNNING
    assert adapter.exec(target, ExecRequest(command="cat kept"), 100).stdout == b"kept\n"


@on_kubernetes
@pytest.mark.parametrize(
    ("turns", "error"),
    [
        ([], UnsupportedOperation),
        ([("Pausing", "PAUSING", ""), ("Running", "RUNNING", "")], SandboxFailed),
    ],
)
def test_a_stop_that_does_not_come_to_be_is_an_error_and_the_sandbox_runs_on(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter, turns: Any, error: type[DifferentlyError]
) -> None:
    target = created(adapter)
    fake.pause_turns = turns
    with pytest.raises(error):
        adapter.stop(target, 120.0)
    assert adapter.get(target).state is InstanceState.RUNNING


@on_kubernetes
def test_a_stop_that_takes_longer_than_its_time_is_told_as_it_stands(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter
) -> None:
    target = created(adapter)
    fake.pause_turns = [("Pausing", "PAUSING", "committing")] * 100
    assert adapter.stop(target, 5.0).state is InstanceState.PENDING


# Snapshots.


def test_a_restored_sandbox_is_its_owners_alone(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    source = created(adapter)
    adapter.exec(source, ExecRequest(command="echo kept > kept"), 100)
    fake.sandboxes[source.ref or ""].metadata["of-the-source"] = "yes"
    taken = adapter.snapshot(source, SnapshotRequest(SnapshotKind.DISK, "op_1"), SECONDS)
    assert (taken.state, taken.owner, taken.size_bytes) == (SnapshotState.READY, OWNER, None)
    child = created(adapter, sandbox="sbx_b", from_snapshot=taken.ref)
    assert fake.sandboxes[child.ref or ""].metadata == {KEY_SANDBOX: "sbx_b", KEY_INSTALLATION: "inst_a"}
    assert adapter.exec(child, ExecRequest(command="cat kept"), 100).stdout == b"kept\n"
    assert adapter.get(Target(OWNER)).ref == source.ref
    assert bodies(fake)[-1]["timeout"] == 3900
    with pytest.raises(InvalidState):  # its image is in use
        adapter.snapshot_delete(OWNER, taken.ref)


def test_one_operation_takes_one_snapshot(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    source = created(adapter)
    request = SnapshotRequest(SnapshotKind.DISK, "op_1")
    fake.expect("POST", "/snapshots$", drop_after)
    first = adapter.snapshot(source, request, SECONDS)
    assert adapter.snapshot(source, request, SECONDS) == first == adapter.snapshot_get(OWNER, first.ref)
    assert len(fake.snapshots) == 1
    for stranger in (Owner("inst_a", "sbx_b"), Owner("inst_b", "sbx_a")):
        for call in (adapter.snapshot_get, adapter.snapshot_delete):
            with pytest.raises(NotFound):
                call(stranger, first.ref)
    with pytest.raises(NotFound):
        created(adapter, sandbox="sbx_c", owner=Owner("inst_b", "sbx_c"), from_snapshot=first.ref)
    for _ in range(2):
        adapter.snapshot_delete(OWNER, first.ref)
    with pytest.raises(NotFound):
        adapter.snapshot_get(OWNER, first.ref)


def test_memory_is_not_captured_unless_the_operator_says_so(adapter: OpenSandboxAdapter) -> None:
    with pytest.raises(UnsupportedOperation, match="no_memory_snapshots"):
        adapter.snapshot(created(adapter), SnapshotRequest(SnapshotKind.MEMORY, "op"), SECONDS)


def test_a_snapshot_whose_answer_was_lost_is_observed_and_not_taken_again(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter
) -> None:
    """Source: reliability.md F21, on a list that lags behind: it is looked for as long as there is time."""
    source = created(adapter)
    fake.expect("POST", "/snapshots$", drop_after)
    fake.expect("GET", "/snapshots$", edit(lambda page: {**page, "items": []}), times=4)
    taken = adapter.snapshot(source, SnapshotRequest(SnapshotKind.DISK, "op_1"), SECONDS)
    assert [taken.ref] == list(fake.snapshots)
    assert len(bodies(fake, path=f"/v1/sandboxes/{source.ref}/snapshots")) == 1


def test_a_snapshot_is_found_by_its_operation_although_its_sandbox_is_gone(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter
) -> None:
    """Else nobody could remove what was taken by a call whose answer was lost before the sandbox was deleted."""
    source = created(adapter)
    request = SnapshotRequest(SnapshotKind.DISK, "op_1")
    taken = adapter.snapshot(source, request, SECONDS)
    adapter.delete(source)
    assert adapter.snapshot(source, request, SECONDS).ref == taken.ref
    with pytest.raises(NotFound):
        adapter.snapshot(source, SnapshotRequest(SnapshotKind.DISK, "op_2"), SECONDS)
    assert list(fake.snapshots) == [taken.ref]


def test_a_snapshot_that_turns_up_late_is_the_operations_and_the_later_one_goes(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter
) -> None:
    source = created(adapter)
    request = SnapshotRequest(SnapshotKind.DISK, "op_1")
    fake.expect("POST", "/snapshots$", drop_after)
    fake.expect("GET", "/snapshots$", edit(lambda page: {**page, "items": []}), times=100)
    with pytest.raises(ProviderUnavailable) as unknown:
        adapter.snapshot(source, request, SECONDS)
    assert not unknown.value.settled
    (late,) = fake.snapshots
    fake.faults[-1].times = 1  # the next look still misses it
    assert adapter.snapshot(source, request, SECONDS).ref == late
    assert list(fake.snapshots) == [late]


# A delete that races a create.


@pytest.mark.parametrize("named", [True, False])
def test_a_delete_that_races_a_create_leaves_nothing(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter, named: bool
) -> None:
    """Whether the delete comes while the server still makes it, or while we wait until commands run in it."""

    def deleted_meanwhile(go: Callable[[], Reply], *_: Any) -> Reply:
        if not named:
            adapter.delete(Target(OWNER))
        reply = go()
        if named:
            adapter.delete(Target(OWNER, json.loads(reply.body)["id"]))
        return reply

    fake.expect(*CREATE, deleted_meanwhile)
    with pytest.raises(BackendError):
        adapter.create(wanted(), SECONDS)
    assert fake.count() == 0
    assert adapter.create(wanted(), SECONDS).state is InstanceState.RUNNING


def test_a_delete_by_another_process_is_not_taken_for_a_missing_snapshot(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter, make: Make
) -> None:
    """`NotFound` of a create says that its snapshot is gone."""

    def deleted_meanwhile(go: Callable[[], Reply], *_: Any) -> Reply:
        reply = go()
        fake.sandboxes[json.loads(reply.body)["id"]].metadata.pop(KEY_SANDBOX)
        return reply

    def gone(go: Callable[[], Reply], *_: Any) -> Reply:
        for ref in list(fake.sandboxes):
            fake.vanish(ref)
        return go()

    fake.expect(*CREATE, deleted_meanwhile)
    fake.expect("PATCH", "/metadata$", gone)
    with pytest.raises(ProviderUnavailable) as unknown:
        adapter.create(wanted(), SECONDS)
    assert not unknown.value.settled


# Egress.

HELD = {"egress": "allowlist", "egressAllow": ["files.test", "10.0.0.0/8"], "egressProbe": "127.0.0.1:1"}


def test_egress_is_told_at_the_create_and_tried_in_the_sandbox(fake: FakeOpenSandbox, make: Make) -> None:
    adapter = make(**HELD)
    assert features.EGRESS_CONTROL in adapter.capabilities().features
    created(adapter)
    rules = [{"action": "allow", "target": "files.test"}, {"action": "allow", "target": "10.0.0.0/8"}]
    assert bodies(fake)[0]["networkPolicy"] == {"defaultAction": "deny", "egress": rules}
    assert features.EGRESS_CONTROL not in make().capabilities().features


@pytest.mark.parametrize("what", ["names only", "no sidecar", "allows more", "reachable all the same"])
def test_a_pool_whose_egress_is_not_held_is_not_well_and_makes_no_sandbox(
    fake: FakeOpenSandbox, make: Make, what: str
) -> None:
    """Source: opensandbox.md 7.20: egress fails silently on nodes without what it needs."""
    held = dict(HELD)
    match what:
        case "names only":
            fake.egress_mode = "dns"
        case "no sidecar":
            fake.expect("GET", "/networkpolicy$", answer(502, "BACKEND_CONNECTION_FAILED"), times=100)
        case "allows more":
            fake.expect(
                "GET", "/networkpolicy$", edit(lambda told: {**told, "policy": {"defaultAction": "allow"}}), 100
            )
        case _:
            held["egressProbe"] = f"127.0.0.1:{fake.port}"
    adapter = make(**held)
    with pytest.raises(ProviderUnavailable):
        adapter.health()
    assert fake.count() == 0  # the sandbox of the check is gone again
    with pytest.raises(ProviderUnavailable) as refused:
        adapter.create(wanted(), SECONDS)
    assert not refused.value.settled


@pytest.mark.parametrize(
    ("pool", "asked", "sent"),
    [
        ({"egress": "rules"}, None, ("allow", [])),
        ({"egress": "rules"}, EgressRules(EgressAction.DENY, ("a.test",), ("b.test",)),
         ("deny", [("deny", "b.test"), ("allow", "a.test")])),
        ({"egress": "none"}, EgressRules(EgressAction.DENY, ("a.test",)), ("deny", [])),
        (HELD, EgressRules(EgressAction.DENY, ("files.test", "evil.test")), ("deny", [("allow", "files.test")])),
        (HELD, EgressRules(EgressAction.ALLOW, (), ("10.1.0.0/16",)),
         ("deny", [("deny", "10.1.0.0/16"), ("allow", "files.test"), ("allow", "10.0.0.0/8")])),
    ],
)  # fmt: skip
def test_a_sandbox_gets_its_own_rules_within_the_pools(
    fake: FakeOpenSandbox, make: Make, pool: dict[str, Any], asked: EgressRules | None, sent: tuple[str, Any]
) -> None:
    adapter = make(**{"egressProbe": "127.0.0.1:1", **pool})
    target = created(adapter, egress=asked)
    default, rules = sent
    wanted_rules = {"defaultAction": default, "egress": [{"action": act, "target": peer} for act, peer in rules]}
    assert bodies(fake)[0]["networkPolicy"] == wanted_rules
    adapter.egress_set(target, asked or EgressRules(EgressAction.ALLOW))
    assert fake.sandboxes[target.ref or ""].policy == wanted_rules


def test_a_pool_without_egress_control_refuses_rules_before_anything_is_sent(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter
) -> None:
    target = created(adapter)
    before = len(fake.requests)
    with pytest.raises(UnsupportedOperation, match="no_egress_control"):
        adapter.egress_set(target, EgressRules(EgressAction.DENY))
    assert len(fake.requests) == before


def test_egress_is_tried_once_and_not_at_every_check(fake: FakeOpenSandbox, make: Make) -> None:
    adapter = make(**HELD)
    for _ in range(3):
        adapter.health()
    assert len(bodies(fake)) == 1
    assert fake.count() == 0


# Which server it is.


def test_the_servers_version_is_told_and_one_that_was_not_tested_warned_of(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter, make: Make
) -> None:
    assert (adapter.info().version, adapter.info().warnings) == ("", ())
    adapter.health()
    assert (adapter.info().version, adapter.info().warnings) == ("1.1.1", ())
    fake.version = "1.2.0"
    other = make()
    other.health()
    assert "OpenSandbox 1.2.0 was not tested" in other.info().warnings[0]
    fake.expect("GET", "/version$", answer(404, ""))
    silent = make()
    silent.health()
    assert "does not tell its version" in silent.info().warnings[0]


def test_pools_of_one_server_are_known_to_share_it(make: Make, fake: FakeOpenSandbox) -> None:
    assert make().info().backend == make(apiUrl=fake.url).info().backend != ""
    assert make(apiUrl="https://other.example.test").info().backend != make().info().backend


# Ports and room.


@on_kubernetes
def test_a_port_is_handed_out_as_a_signed_address_of_the_gateway(fake: FakeOpenSandbox, make: Make) -> None:
    adapter = make(ports="signed", portUrlSeconds=600)
    target = created(adapter)
    assert bodies(fake)[0]["secureAccess"] is True
    exposed = adapter.port_expose(target, 3000, 7200)
    assert exposed.url.startswith(f"https://gw.example.test/{target.ref}/3000/")
    assert exposed.expires_at is not None
    assert exposed.expires_at - SystemClock().now() <= timedelta(seconds=600)
    assert exposed.url not in repr(exposed)
    for port in (44772, 18080):
        with pytest.raises(InvalidRequest):
            adapter.port_expose(target, port, 60)


@on_kubernetes
@pytest.mark.parametrize(
    "told",
    [
        {"endpoint": "gw.example.test/x/3000/sig", "headers": {"OpenSandbox-Ingress-To": "x-3000"}},
        {"endpoint": "10.1.2.3:3000"},
        {"endpoint": "srv.example.test/v1/sandboxes/x/proxy/3000"},
    ],
)
def test_an_address_that_needs_a_header_or_our_server_is_not_handed_out(
    fake: FakeOpenSandbox, make: Make, told: dict[str, Any]
) -> None:
    adapter = make(ports="signed")
    target = created(adapter)
    fake.expect("GET", "/endpoints/3000$", edit(lambda _: told))
    with pytest.raises(UnsupportedOperation, match="no address"):
        adapter.port_expose(target, 3000, 60)


@on_kubernetes
def test_room_is_told_of_pools_only(fake: FakeOpenSandbox, make: Make) -> None:
    assert not make().capacity().bounded
    spec = {"bufferMax": 1, "bufferMin": 0, "poolMax": 3, "poolMin": 0}
    fake.pools["warm"] = {"name": "warm", "capacitySpec": spec}
    sized = make(poolRef="warm", poolCpuMillis=500, poolMemoryMiB=256)
    assert not sized.capacity().bounded
    fake.pools["warm"]["status"] = {"total": 3, "allocated": 1, "available": 2, "revision": "1"}
    room = sized.capacity()
    assert (room.bounded, room.free_cpu_millis, room.largest_free_cpu_millis) == (True, 1000, 500)
    assert not make(poolRef="warm").capacity().bounded
    fake.pools["warm"]["status"]["allocated"] = 3
    for adapter in (make(poolRef="warm"), make(poolRef="*"), sized):
        assert (adapter.capacity().bounded, adapter.capacity().free_cpu_millis) == (True, 0)
    assert "pool/warm" in sized.discover().templates


# Commands and files.


def test_the_answer_comes_with_the_last_event_and_not_with_the_end_of_the_stream(
    adapter: OpenSandboxAdapter,
) -> None:
    target, clock = created(adapter), SystemClock()
    began = clock.monotonic()
    assert adapter.exec(target, ExecRequest(command="true"), 10).exit_code == 0
    assert clock.monotonic() - began < 4.0  # the stand-in holds each stream for 5 s


def test_a_command_leaves_nothing_behind(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    target = created(adapter)
    tmp = fake.sandboxes[target.ref or ""].box.tmp
    adapter.exec(target, ExecRequest(command="cat; ls -la $TMPDIR/.diff* >&2", stdin="in" * 50_000), 10)
    adapter.exec(target, ExecRequest(command="head -c 300000 /dev/zero"), 1_000_000)
    adapter.exec(target, ExecRequest(command="sleep 60", timeout_seconds=1), 10)
    list(adapter.exec_stream(target, ExecRequest(command="echo out; echo err >&2", stdin="x"), 5.0))
    with pytest.raises(InvalidRequest):
        adapter.exec(target, ExecRequest(command="true", cwd="/no/such"), 10)
    adapter.file_write(target, "folder/$HOME", [b"x"])
    list(adapter.file_read(target, "folder/$HOME").chunks)
    assert list(tmp.iterdir()) == []


def test_the_input_of_a_command_is_private_and_gone_before_it_runs(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter
) -> None:
    target = created(adapter)
    seen = adapter.exec(target, ExecRequest(command="find $TMPDIR -type f -perm /077; find $TMPDIR -name stdin; cat",
                                            stdin="secret"), 1000)  # fmt: skip
    assert seen.stdout == b"secret"


def test_a_command_longer_than_the_kernel_takes_in_one_argument_runs(adapter: OpenSandboxAdapter) -> None:
    target = created(adapter)
    text = "x" * 130_000
    assert adapter.exec(target, ExecRequest(command=f"echo {text} | wc -c"), 100).stdout == b"130001\n"
    args = ["sh", "-c", 'echo "$#"', *["arg'ument"] * 1_000]
    assert adapter.exec(target, ExecRequest(args=[*args, "y" * 100_000]), 100).stdout == b"1000\n"


def test_a_caller_may_call_its_variables_as_it_likes(adapter: OpenSandboxAdapter) -> None:
    env = {name: f"of {name}" for name in ("o", "e", "code", "n", "d", "k", "last", "PATH", "IFS", "UID")}
    command = 'echo "$o|$e|$code|$n|$d|$k|$last|$PATH|$IFS"'
    wanted_text = b"of o|of e|of code|of n|of d|of k|of last|of PATH|"
    for run in (
        adapter.exec(created(adapter), ExecRequest(command=command, env=env), 1000).stdout,
        next(event.data for event in adapter.exec_stream(created(adapter), ExecRequest(command=command, env=env), 9.0)
             if hasattr(event, "data")),
    ):  # fmt: skip
        assert run.startswith(wanted_text)


def test_an_execd_that_does_not_keep_time_is_told_to_stop(fake: FakeOpenSandbox, make: Make) -> None:
    adapter = make(clock=SystemClock())
    target = created(adapter)
    fake.agent.keeps_time = False
    result = adapter.exec(target, ExecRequest(command="echo begun; sleep 60", timeout_seconds=1), 100)
    assert (result.exit_code, result.timed_out, result.stdout) == (124, True, b"begun\n")
    assert any((request.method, request.path[-8:]) == ("DELETE", "/command") for request in fake.requests)


@pytest.mark.parametrize(
    ("mode", "expected"), [("restored", b"a\nb\n\nend\n"), ("kept", b"ab\nend"), ("exact", b"a\r\nb\n\nend")]
)
def test_line_ends_are_kept_restored_or_lost_as_configured(make: Make, mode: str, expected: bytes) -> None:
    adapter = make(lineEndings=mode)
    target = created(adapter)
    command = ExecRequest(command=r"printf 'a\r\nb\n\nend'; exit 3", stdin="unused", cwd=".")
    result = adapter.exec(target, command, 100)
    assert (result.stdout, result.exit_code) == (expected, 3)
    streamed = list(adapter.exec_stream(target, command, 5.0))
    assert b"".join(event.data for event in streamed if hasattr(event, "data")) == expected
    assert adapter.exec(target, ExecRequest(command="kill -s KILL $$"), 100).exit_code == 137
    with pytest.raises(InvalidRequest):
        adapter.exec(target, ExecRequest(command="true", cwd="/no/such"), 10)


def test_an_upload_that_was_swallowed_is_noticed(fake: FakeOpenSandbox, adapter: OpenSandboxAdapter) -> None:
    target = created(adapter)
    adapter.file_write(target, "file", [b"old"])
    fake.expect("POST", "/files/upload$", lambda *_: Reply(), times=2)
    with pytest.raises(ProviderUnavailable, match="cut off"):
        adapter.file_write(target, "file", [b"new"])
    with pytest.raises(ProviderUnavailable, match="not started"):
        adapter.exec(target, ExecRequest(command="cat", stdin="x"), 10)
    assert b"".join(adapter.file_read(target, "file").chunks) == b"old"


def test_a_file_over_the_limit_is_an_error_and_never_half_a_file(
    fake: FakeOpenSandbox, adapter: OpenSandboxAdapter
) -> None:
    target = created(adapter)
    adapter.exec(target, ExecRequest(command="truncate -s 104857601 big; echo short > short"), 100)
    with pytest.raises(PayloadTooLarge):
        adapter.file_read(target, "big")
    fake.expect("GET", "/files/download$", cut_body(3))
    with pytest.raises(ProviderUnavailable):
        list(adapter.file_read(target, "short").chunks)


def test_a_replaced_file_keeps_its_mode(adapter: OpenSandboxAdapter) -> None:
    target = created(adapter)
    assert adapter.file_write(target, "tool", [b"#!/bin/sh\n"]).mode == "0644"
    adapter.exec(target, ExecRequest(command="chmod 755 tool"), 100)
    assert adapter.file_write(target, "tool", [b"#!/bin/sh\necho new\n"]).mode == "0755"
    assert adapter.exec(target, ExecRequest(command="./tool"), 100).stdout == b"new\n"
