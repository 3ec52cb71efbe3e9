"""Files: raw bytes in and out, names of every kind, limits at the boundary."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote, unquote

import pytest

from differently_adapters.providers.fake import FakeAdapter
from differently_api.routes.files import ENTRIES_MAX, disposition
from differently_core.contract import FileContent, Target
from differently_core.errors import ProviderUnavailable
from differently_core.model.exec import FILE_BYTES_MAX, FILE_BYTES_MAX_INLINE, FileInfo
from tests.support.api import Reply, Tenant, World

NAMES = [
    "a.txt",
    "with space",
    "quo\"te'",
    "new\nline",
    "🍌.bin",
    "-dash",
    "ünï",
    "a;b",
    "100%",
    "back\\slash",
    "x" * 200,
]


def content(sandbox: str, path: str) -> str:
    return f"/v1/sandboxes/{sandbox}/files/content?path={quote(path, safe='')}"


def reads(monkeypatch: pytest.MonkeyPatch, size: int, *chunks: bytes | Exception) -> None:
    """What every read of a file gives from now on."""

    def made() -> Iterator[bytes]:
        for chunk in chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    def file_read(self: FakeAdapter, target: Target, path: str) -> FileContent:
        return FileContent(size, made())

    monkeypatch.setattr(FakeAdapter, "file_read", file_read)


def read(world: World, tenant: Tenant, sandbox: str, path: str = "a") -> Reply:
    return world.call("GET", content(sandbox, path), token=tenant.token)


def test_bytes_come_back_as_they_went(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    data = b"\x00\xff\x0a\x27\x80"
    written = world.call("PUT", content(sandbox, "out/a.bin"), data, token=acme.token)
    assert (written.status, written.json()["size"]) == (200, 5)
    reply = read(world, acme, sandbox, "out/a.bin")
    assert (reply.status, reply.raw) == (200, data)
    assert reply.headers["Content-Length"] == "5"
    assert reply.headers["Content-Type"] == "application/octet-stream"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Content-Security-Policy"].startswith("sandbox")
    assert reply.headers["Content-Disposition"].startswith('attachment; filename="a.bin"')


def test_a_text_body_is_written_as_its_bytes(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    memory.call("PUT", content(sandbox, "a"), "grün", token=tenant.token)
    assert read(memory, tenant, sandbox).raw == "grün".encode()


def test_an_empty_file_is_a_file(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    assert memory.call("PUT", content(sandbox, "a"), b"", token=tenant.token).status == 200
    reply = read(memory, tenant, sandbox)
    assert (reply.status, reply.raw, reply.headers["Content-Length"]) == (200, b"", "0")


def test_a_directory_lists_and_looks_and_goes(world: World, acme: Tenant) -> None:
    sandbox = world.running(acme)
    base = f"/v1/sandboxes/{sandbox}/files"
    for name in ("b.txt", "a.txt"):
        world.call("PUT", content(sandbox, f"dir/{name}"), b"12", token=acme.token)
    listed = world.call("GET", f"{base}?path=dir", token=acme.token).json()["items"]
    assert [(entry["name"], entry["size"], entry["isDir"]) for entry in listed] == [
        ("a.txt", 2, False),
        ("b.txt", 2, False),
    ]
    stat = world.call("GET", f"{base}/stat?path=dir/a.txt", token=acme.token).json()
    assert (stat["size"], stat["isDir"]) == (2, False)
    gone = world.call("DELETE", content(sandbox, "dir"), token=acme.token)
    assert (gone.status, gone.json()) == (200, {"path": "dir", "deleted": True})
    assert world.call("GET", f"{base}/stat?path=dir/a.txt", token=acme.token).status == 404
    assert world.call("DELETE", content(sandbox, "dir"), token=acme.token).status == 200


@pytest.mark.parametrize("name", NAMES)
def test_any_name_goes_through_and_its_header_is_safe(memory: World, name: str) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    assert memory.call("PUT", content(sandbox, name), b"x", token=tenant.token).status == 200
    reply = read(memory, tenant, sandbox, name)
    assert reply.raw == b"x"
    header = reply.headers["Content-Disposition"]
    assert header.isascii()
    assert header.isprintable()
    assert header.count('"') == 2
    assert unquote(header.partition("filename*=UTF-8''")[2]) == name


def test_a_download_is_named_after_the_last_part() -> None:
    assert disposition("/a/b/c.txt").endswith("UTF-8''c.txt")
    assert disposition("dir/").endswith("UTF-8''dir")
    assert disposition("/").endswith("UTF-8''file")


def test_a_body_may_hold_4_mib_and_no_byte_more(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    most = bytes(FILE_BYTES_MAX_INLINE)
    assert memory.call("PUT", content(sandbox, "a"), most, token=tenant.token).status == 200
    over = memory.call("PUT", content(sandbox, "a"), most + b"x", token=tenant.token)
    assert (over.status, over.code) == (413, "payload_too_large")
    assert over.json()["error"]["details"]["limit"] == FILE_BYTES_MAX_INLINE
    assert memory.call("PUT", content(sandbox, "a"), "x" * (len(most) + 1), token=tenant.token).status == 413


def test_a_file_over_100_mib_is_refused_before_its_first_byte(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    reads(monkeypatch, FILE_BYTES_MAX, *[bytes(1024 * 1024)] * 100)
    assert sum(len(chunk) for chunk in read(memory, tenant, sandbox).chunks) == FILE_BYTES_MAX
    reads(monkeypatch, FILE_BYTES_MAX + 1, b"never sent")
    over = read(memory, tenant, sandbox)
    assert (over.status, over.code, over.streamed) == (413, "payload_too_large", False)


@pytest.mark.parametrize(
    "chunks",
    [
        (b"123", ProviderUnavailable("The backend broke off.")),
        (b"123", RuntimeError("a bug")),
        (b"123",),
        (b"123", b"4567"),
    ],
    ids=["the backend says so", "a bug", "it just ends", "it grew"],
)
def test_a_cut_file_never_looks_whole(
    memory: World, monkeypatch: pytest.MonkeyPatch, chunks: tuple[bytes | Exception, ...]
) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    reads(monkeypatch, 5, *chunks)
    reply = read(memory, tenant, sandbox)
    assert (reply.status, reply.headers["Content-Length"]) == (200, "5")
    assert next(reply.chunks) == b"123"
    with pytest.raises((ProviderUnavailable, RuntimeError)):
        list(reply.chunks)


def test_a_directory_too_large_to_list_says_so(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    entry = FileInfo(name="a", path="a", size=0, is_dir=False, mode="0644")
    for count, status in ((ENTRIES_MAX, 200), (ENTRIES_MAX + 1, 413)):
        monkeypatch.setattr(FakeAdapter, "file_list", lambda *_, entries=[entry] * count: entries)
        assert memory.call("GET", f"/v1/sandboxes/{sandbox}/files", token=tenant.token).status == status


def test_what_is_missing_is_404_and_what_is_no_file_is_400(memory: World) -> None:
    tenant = memory.tenant()
    sandbox = memory.running(tenant)
    assert read(memory, tenant, sandbox, "nothing").status == 404
    memory.call("PUT", content(sandbox, "dir/a"), b"x", token=tenant.token)
    assert read(memory, tenant, sandbox, "dir").status == 400
