"""Large files: to the address that the server names, without the key, and made a file once."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from differently import Client, Sandbox
from differently._sync import uploads
from differently._upload import PIECE_BYTES, signed_url
from differently.errors import UploadFailed
from differently_core.store.staging import NoStaging
from tests.support.api import World
from tests.support.client import STAGING, WorldTransport, async_client_of, client_of

LARGE = bytes(range(256)) * (6 * 4096)
"""6 MiB."""


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


@pytest.fixture
def sandbox(client: Client) -> Sandbox:
    made = client.sandboxes.create()
    transport_of(client).seen.clear()
    return made


def transport_of(client: Client) -> WorldTransport:
    found = client._transport._http._transport
    assert isinstance(found, WorldTransport)
    return found


def steps(transport: WorldTransport) -> list[str]:
    """Method and the last word of each path, staging by its host."""
    return [
        f"{request.method} {STAGING if request.url.host == STAGING else request.url.path.rpartition('/')[2]}"
        for request in transport.seen
    ]


STEPS = ["POST uploads", f"PUT {STAGING}", "PUT content"]


def first(wanted: Callable[[httpx.Request], bool], failure: Exception | httpx.Response) -> Callable[..., None]:
    """Strikes the first request that is wanted, and then no more."""
    left = [failure]

    def strike(request: httpx.Request, response: httpx.Response | None = None) -> httpx.Response | None:
        if not left or not wanted(request):
            return None
        struck = left.pop()
        if isinstance(struck, Exception):
            raise struck
        return struck

    return strike  # type: ignore[return-value]


def to_staging(request: httpx.Request) -> bool:
    return request.url.host == STAGING


def is_last_step(request: httpx.Request) -> bool:
    return "upload" in request.url.params and request.method == "PUT"


def test_a_large_file_goes_in_pieces_and_without_the_key(sandbox: Sandbox, client: Client, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(LARGE)
    moved: list[int] = []
    longest: list[int] = []
    transport = transport_of(client)
    transport.before = lambda request: longest.append(max(transport.pieces, default=0))
    sandbox.files.upload(tmp_path / "in", "data/out", moved.append)
    assert steps(transport) == STEPS
    assert max(longest) <= PIECE_BYTES
    assert moved == list(range(PIECE_BYTES, len(LARGE) + 1, PIECE_BYTES))
    sent = transport.seen[1]
    assert sent.headers["content-length"] == str(len(LARGE))
    assert "authorization" not in sent.headers
    assert client._transport.settings.api_key not in repr(sent.headers.raw)
    assert sandbox.files.read("data/out") == LARGE


def test_the_same_from_memory_and_with_asyncio(world: World) -> None:
    async def story() -> tuple[list[str], bytes]:
        client, transport = async_client_of(world, world.tenant().token)
        async with client, await client.sandboxes.create() as sandbox:
            transport.seen.clear()
            await sandbox.files.write("a", LARGE)
            done = steps(transport)
            return done, await sandbox.files.read("a")

    assert asyncio.run(story()) == (STEPS, LARGE)


def test_four_mebibytes_go_in_one_call(sandbox: Sandbox, client: Client, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(LARGE[: 4 * 1024 * 1024])
    sandbox.files.upload(tmp_path / "in", "a")
    assert steps(transport_of(client)) == ["PUT content"]


def test_a_lost_answer_of_the_last_step_is_asked_for_again(sandbox: Sandbox, client: Client) -> None:
    transport_of(client).after = first(is_last_step, httpx.ReadError("reset"))
    sandbox.files.write("a", LARGE)
    assert steps(transport_of(client)) == [*STEPS, "PUT content"]
    assert sandbox.files.read("a") == LARGE


def test_while_it_is_written_yet_its_end_is_waited_for(sandbox: Sandbox, client: Client, world: World) -> None:
    error = {"code": "invalid_state", "message": "written already", "details": {"status": "writing"}}
    transport_of(client).before = first(is_last_step, httpx.Response(409, json={"error": error}))
    began = world.clock.now()
    sandbox.files.write("a", LARGE)
    assert (world.clock.now() - began).total_seconds() >= 2
    assert sandbox.files.read("a") == LARGE


@pytest.mark.parametrize("failure", [httpx.WriteError("reset"), httpx.Response(503), httpx.Response(500)], ids=repr)
def test_what_may_pass_is_sent_again_from_its_beginning(
    sandbox: Sandbox, client: Client, failure: Exception | httpx.Response
) -> None:
    transport_of(client).before = first(to_staging, failure)
    sandbox.files.write("a", LARGE)
    assert steps(transport_of(client)) == [STEPS[0], STEPS[1], *STEPS[1:]]
    assert sandbox.files.read("a") == LARGE


@pytest.mark.parametrize("failure", [httpx.ConnectError("no way to S3cret"), httpx.Response(403)], ids=repr)
def test_no_error_and_no_log_tells_the_address(
    sandbox: Sandbox, client: Client, failure: Exception | httpx.Response, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """S3 quotes what was signed, and httpx logs every address."""
    # Adapters of the server quieten httpx in their process, which this one may share; a user of the client has none.
    monkeypatch.setattr(logging.getLogger("httpx"), "filters", [])
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="httpx")
    text = b"<Error><Code>SignatureDoesNotMatch</Code><StringToSign>S3cret</StringToSign></Error>"
    addresses: list[str] = []

    def refuse(request: httpx.Request) -> httpx.Response | None:
        if not to_staging(request):
            return None
        addresses.append(request.url.raw_path.decode())
        if isinstance(failure, Exception):
            raise failure
        return httpx.Response(failure.status_code, content=text)

    transport_of(client).before = refuse
    with pytest.raises(UploadFailed) as raised:
        sandbox.files.write("a", LARGE)
    told = f"{raised.value!r} {raised.value} {vars(raised.value)} {caplog.text}"
    assert "S3cret" not in told
    assert addresses[0] not in told
    assert raised.value.__context__ is None
    assert len(addresses) == (5 if isinstance(failure, Exception) else 1)
    if not isinstance(failure, Exception):
        assert "403 (SignatureDoesNotMatch)" in str(raised.value)
        assert "HTTP Request: PUT" in caplog.text


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(404, json={"error": {"code": "not_found", "message": "no such route"}}),
        httpx.Response(501, json={"error": {"code": "unsupported_operation", "message": "no"}}),
        httpx.Response(404, text="Not Found"),
    ],
    ids=["404", "501", "page"],
)
def test_a_server_without_uploads_gets_parts(sandbox: Sandbox, client: Client, answer: httpx.Response) -> None:
    """tests/e2e/test_client.py joins real ones."""
    transport_of(client).before = first(lambda request: request.url.path.endswith("/uploads"), answer)
    sandbox.files.write("a", LARGE)
    assert steps(transport_of(client)) == [
        "POST uploads", "PUT content", "PUT content", "POST exec", "DELETE content",
    ]  # fmt: skip


def test_a_server_without_a_bucket_gets_parts(
    sandbox: Sandbox, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so with the advice to come back in five seconds; there is another way, so nobody waits."""
    world = transport_of(client).world
    monkeypatch.setattr(world.staging, "address", NoStaging().address)
    began = world.clock.now()
    sandbox.files.write("a", LARGE)
    assert world.clock.now() == began
    assert steps(transport_of(client)) == [
        "POST uploads", "PUT content", "PUT content", "POST exec", "DELETE content",
    ]  # fmt: skip


def test_a_lost_answer_of_the_first_step_is_asked_for_again(sandbox: Sandbox, client: Client) -> None:
    lost = first(lambda request: request.url.path.endswith("/uploads"), httpx.ReadError("reset"))
    transport_of(client).after = lost
    sandbox.files.write("a", LARGE)
    assert steps(transport_of(client)) == ["POST uploads", *STEPS]
    assert sandbox.files.read("a") == LARGE


def test_another_refusal_is_no_reason_for_parts(sandbox: Sandbox, client: Client) -> None:
    error = {"code": "limit_exceeded", "message": "too many"}
    answer = httpx.Response(422, json={"error": error})
    transport_of(client).before = first(lambda request: request.url.path.endswith("/uploads"), answer)
    with pytest.raises(Exception, match="too many"):
        sandbox.files.write("a", LARGE)
    assert steps(transport_of(client)) == ["POST uploads"]


def test_a_file_that_becomes_shorter_is_no_file() -> None:
    pieces = uploads._pieces(io.BytesIO(b"12"), 3, lambda moved: None)
    with pytest.raises(UploadFailed, match="shorter"):
        list(pieces)
    assert list(uploads._pieces(io.BytesIO(b"1234"), 3, lambda moved: None)) == [b"123"]


@pytest.mark.parametrize(
    "url", ["", "http://bucket.example/x?s=S3cret", "file:///S3cret", "https://u:S3cret@h/", "https://h:S3cret/", "x"]
)
def test_files_go_nowhere_unencrypted(url: str) -> None:
    with pytest.raises(UploadFailed) as raised:
        signed_url(url)
    assert "S3cret" not in str(raised.value)


def test_a_signed_address_leads_where_it_led_and_is_not_told() -> None:
    url = signed_url("http://127.0.0.1:4566/bucket/a%2Fb?X-Amz-Signature=S3cret")
    assert (url.host, url.port, url.raw_path) == ("127.0.0.1", 4566, b"/bucket/a%2Fb?X-Amz-Signature=S3cret")
    assert f"{url} {url!r}" == "http://127.0.0.1:4566/ SignedUrl('http://127.0.0.1:4566/')"
