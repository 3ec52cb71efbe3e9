"""Large files: announced, sent to a bucket, then written into one sandbox, once, by nobody else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import pytest

from differently_adapters.providers.fake import FakeAdapter
from differently_core.contract import Target
from differently_core.errors import ProviderUnavailable
from differently_core.model.exec import FILE_BYTES_MAX, FileInfo
from differently_core.model.sandbox import Sandbox
from differently_core.model.upload import (
    SEND_SECONDS,
    UPLOADS_MAX,
    USE_SECONDS,
    WRITE_SECONDS,
    Upload,
    UploadStatus,
)
from differently_core.runtime.ids import SandboxId
from differently_core.store.ports import Equals, Put
from tests.support.api import Reply, Tenant, World

DATA = bytes(range(256)) * 16_384 + b"more than 4 MiB"


def begin(world: World, tenant: Tenant, sandbox: str, data: bytes = DATA) -> Reply:
    body = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return world.call("POST", f"/v1/sandboxes/{sandbox}/files/uploads", body, token=tenant.token)


def sent(world: World, tenant: Tenant, sandbox: str, data: bytes = DATA) -> str:
    """The id of an upload whose bytes are there."""
    begun = begin(world, tenant, sandbox, data)
    assert begun.status == 201, begun.raw
    assert world.staging.send(begun.json(), data)
    return str(begun.json()["id"])


def use(world: World, tenant: Tenant, sandbox: str, upload: str, path: str = "in.bin", body: Any = None) -> Reply:
    target = f"/v1/sandboxes/{sandbox}/files/content?path={path}&upload={upload}"
    return world.call("PUT", target, body, token=tenant.token)


def content(world: World, tenant: Tenant, sandbox: str, path: str = "in.bin") -> bytes:
    return world.call("GET", f"/v1/sandboxes/{sandbox}/files/content?path={path}", token=tenant.token).raw


def test_a_file_above_the_inline_limit_goes_by_an_upload(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    begun = begin(world, acme, sandbox)
    told = begun.json()
    assert (begun.status, told["method"]) == (201, "PUT")
    assert world.staging.send(told, DATA)

    written = use(world, acme, sandbox, told["id"], "deep/in.bin")

    assert (written.status, written.json()["size"]) == (200, len(DATA))
    assert content(world, acme, sandbox, "deep/in.bin") == DATA
    assert world.staging.kept == {}


def test_an_inline_body_that_is_too_large_is_told_where_to_go(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    refused = memory.call("PUT", f"/v1/sandboxes/{sandbox}/files/content?path=a", DATA, token=tenant.token)
    assert (refused.status, refused.code) == (413, "payload_too_large")
    assert "POST /v1/sandboxes/{id}/files/uploads" in refused.json()["error"]["message"]


def test_it_is_used_once_and_a_lost_answer_can_be_asked_for_again(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    upload = sent(world, acme, sandbox)
    first = use(world, acme, sandbox, upload)
    world.call("PUT", f"/v1/sandboxes/{sandbox}/files/content?path=in.bin", b"changed", token=acme.token)

    again = use(world, acme, sandbox, upload)
    elsewhere = use(world, acme, sandbox, upload, "other.bin")

    assert (again.status, again.json()) == (200, first.json())
    assert content(world, acme, sandbox) == b"changed"
    assert (elsewhere.status, elsewhere.code) == (409, "invalid_state")


def test_nobody_else_can_use_it(world: World, acme: Tenant) -> None:
    mine, other = world.running(acme), world.running(acme)
    stranger = world.tenant("stranger")
    theirs = world.running(stranger)
    upload = sent(world, acme, mine)

    assert use(world, acme, other, upload).status == 404
    assert use(world, stranger, theirs, upload).status == 404
    assert use(world, stranger, mine, upload).status == 404
    assert begin(world, stranger, mine).status == 404
    assert use(world, acme, mine, upload).status == 200


def test_it_ends_with_its_hour(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant, {"ttlSeconds": 7200})
    upload = sent(memory, tenant, sandbox)
    memory.clock.advance(USE_SECONDS)
    over = use(memory, tenant, sandbox, upload)
    assert (over.status, over.code) == (404, "not_found")


def test_what_was_not_sent_cannot_be_used(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    begun = begin(memory, tenant, sandbox).json()
    assert not memory.staging.send(begun, DATA[:-1])
    refused = use(memory, tenant, sandbox, begun["id"])
    assert (refused.status, refused.code) == (409, "invalid_state")
    assert memory.staging.send(begun, DATA)
    assert use(memory, tenant, sandbox, begun["id"]).status == 200


@pytest.mark.parametrize("damaged", [DATA[:-1], DATA + b"x", b"x" + DATA[1:]], ids=["cut", "longer", "changed"])
def test_what_was_not_announced_is_never_a_file(memory: World, damaged: bytes) -> None:
    """S3 refuses it already; what an installation stands on may not."""
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    memory.call("PUT", f"/v1/sandboxes/{sandbox}/files/content?path=in.bin", b"old", token=tenant.token)
    upload = sent(memory, tenant, sandbox)
    (name,) = memory.staging.kept
    memory.staging.kept[name] = damaged

    refused = use(memory, tenant, sandbox, upload)

    assert (refused.status, refused.code) == (409, "invalid_state")
    assert content(memory, tenant, sandbox) == b"old"


def test_a_write_that_failed_can_be_tried_again(world: World, acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = world.running(acme)
    upload = sent(world, acme, sandbox)
    with monkeypatch.context() as patched:
        patched.setattr(FakeAdapter, "file_write", _breaks_off)
        assert use(world, acme, sandbox, upload).status == 503
    assert use(world, acme, sandbox, upload).status == 200
    assert content(world, acme, sandbox) == DATA


def _breaks_off(self: FakeAdapter, target: Target, path: str, data: Iterable[bytes]) -> FileInfo:
    next(iter(data))
    raise ProviderUnavailable("The backend broke off.")


def test_a_bucket_that_fails_half_way_is_not_told_as_the_backends_fault(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    upload = sent(memory, tenant, sandbox)

    def file_write(self: FakeAdapter, target: Target, path: str, data: Iterable[bytes]) -> FileInfo:
        memory.staging.up = False
        try:
            list(data)
        except Exception as error:
            raise ProviderUnavailable("The backend broke off.") from error
        raise AssertionError("it was read to its end")

    monkeypatch.setattr(FakeAdapter, "file_write", file_write)
    refused = use(memory, tenant, sandbox, upload)
    assert refused.status == 503
    assert "staging bucket" in refused.json()["error"]["message"]


def test_two_writers_do_not_meet(world: World, acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = world.running(acme)
    upload = sent(world, acme, sandbox)
    write = FakeAdapter.file_write
    meanwhile: list[int] = []

    def file_write(self: FakeAdapter, target: Target, path: str, data: Iterable[bytes]) -> FileInfo:
        meanwhile.append(use(world, acme, sandbox, upload).status)
        return write(self, target, path, data)

    monkeypatch.setattr(FakeAdapter, "file_write", file_write)
    assert use(world, acme, sandbox, upload).status == 200
    assert meanwhile == [409]


def test_a_claim_of_the_dead_ends_by_itself(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme, {"ttlSeconds": 7200})
    upload = sent(world, acme, sandbox)
    found = world.core.store.get(Upload, Upload.key_of(SandboxId(sandbox), upload))
    assert found is not None
    until = world.core.after(WRITE_SECONDS)
    claimed = found.with_(status=UploadStatus.WRITING, path="in.bin", claimed_until=until, version=2)
    world.core.commit([Put(claimed, (Equals("version", 1),), "upload")])

    assert use(world, acme, sandbox, upload).status == 409
    world.clock.advance(WRITE_SECONDS)
    assert use(world, acme, sandbox, upload).status == 200


def test_one_sandbox_holds_only_so_many(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant, {"ttlSeconds": 7200})
    uploads = [sent(memory, tenant, sandbox) for _ in range(UPLOADS_MAX)]
    over = begin(memory, tenant, sandbox)
    assert (over.status, over.code) == (422, "limit_exceeded")
    assert use(memory, tenant, sandbox, uploads[0]).status == 200
    assert begin(memory, tenant, sandbox).status == 201
    memory.clock.advance(USE_SECONDS)
    assert begin(memory, tenant, sandbox).status == 201


def test_a_sleeping_sandbox_is_woken_by_the_write_alone(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant, {"idleTimeoutSeconds": 60})
    memory.pass_time(61)
    memory.pass_time(61)
    status = memory.call("GET", f"/v1/sandboxes/{sandbox}", token=tenant.token).json()["status"]
    assert status in ("paused", "stopped")
    upload = sent(memory, tenant, sandbox)
    assert memory.call("GET", f"/v1/sandboxes/{sandbox}", token=tenant.token).json()["status"] == status
    assert use(memory, tenant, sandbox, upload).status == 200


def test_while_it_is_written_the_sandbox_stays_awake(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant, {"idleTimeoutSeconds": 60, "ttlSeconds": 7200})
    upload = sent(memory, tenant, sandbox)
    write = FakeAdapter.file_write
    during: list[Sandbox | None] = []

    def file_write(self: FakeAdapter, target: Target, path: str, data: Iterable[bytes]) -> FileInfo:
        memory.pass_time(WRITE_SECONDS / 2)
        during.append(memory.core.store.get(Sandbox, Sandbox.key_of(target.owner.sandbox)))  # type: ignore[arg-type]
        return write(self, target, path, data)

    monkeypatch.setattr(FakeAdapter, "file_write", file_write)
    assert use(memory, tenant, sandbox, upload).status == 200
    assert [found.status.value for found in during if found is not None] == ["running"]


def test_an_ended_sandbox_takes_none(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    memory.call("DELETE", f"/v1/sandboxes/{sandbox}", token=tenant.token)
    memory.settle()
    refused = begin(memory, tenant, sandbox)
    assert (refused.status, refused.code) == (409, "invalid_state")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"size": 0}, "size"),
        ({"size": FILE_BYTES_MAX + 1}, "size"),
        ({"sha256": "AB" * 32}, "sha256"),
        ({"sha256": "ab"}, "sha256"),
        ({"name": "x"}, "name"),
    ],
)
def test_what_is_announced_is_checked(memory: World, change: dict[str, Any], field: str) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    body = {"size": 5, "sha256": hashlib.sha256(b"hello").hexdigest(), **change}
    refused = memory.call("POST", f"/v1/sandboxes/{sandbox}/files/uploads", body, token=tenant.token)
    assert (refused.status, refused.code) == (400, "invalid_request")
    assert field in refused.json()["error"]["message"]


def test_an_upload_and_a_body_are_not_sent_together(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    refused = use(memory, tenant, sandbox, sent(memory, tenant, sandbox), body=b"x")
    assert (refused.status, refused.json()["error"]["details"]["field"]) == (400, "upload")


def test_a_bucket_out_of_reach_is_503(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    upload = sent(memory, tenant, sandbox)
    memory.staging.up = False
    assert use(memory, tenant, sandbox, upload).status == 503
    memory.staging.up = True
    assert use(memory, tenant, sandbox, upload).status == 200


def test_times_are_told(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    told = begin(memory, tenant, sandbox).json()
    now = memory.clock.now().timestamp()
    assert datetime.fromisoformat(told["sendBy"]).timestamp() - now == SEND_SECONDS
    assert datetime.fromisoformat(told["expiresAt"]).timestamp() - now == USE_SECONDS
