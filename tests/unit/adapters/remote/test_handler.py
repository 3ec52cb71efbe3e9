"""The server's side of the protocol as a function: what any client meets, a version 1 client among them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from differently_adapters.providers.fake import FakeAdapter, FakeBackend, Refuse
from differently_adapters.remote.handler import JSON_BYTES_MAX, Handler
from differently_adapters.remote.refs import with_owner, without_owner
from differently_adapters.remote.serve import as_wsgi
from differently_core.contract import CommandResult, Declaration, ExecEvent, Exit, Operation, Output, Owner, Unsupported
from differently_core.errors import (
    AdapterFault,
    DifferentlyError,
    ExecUnconfirmed,
    InsufficientCapacity,
    InvalidRequest,
    InvalidState,
    NotFound,
    PayloadTooLarge,
    ProviderUnavailable,
    SandboxFailed,
)
from differently_core.model.exec import FILE_BYTES_MAX
from differently_core.runtime.clock import VirtualClock

TOKEN = "plugin-token"
OWNER = Owner("inst_a", "sbx_1")
AS_OWNER = {"Differently-Installation": "inst_a", "Differently-Sandbox-Id": "sbx_1"}
CREATE = {"id": "sbx_1", "labels": {"differently.dev/installation": "inst_a"}, "resources": {"cpu": 0.5}}
IDS = st.text(min_size=1).filter(lambda text: "~" not in text)
Send = Callable[..., tuple[int, dict[str, str], bytes]]


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend(VirtualClock())


@pytest.fixture
def send(backend: FakeBackend) -> Send:
    return sender(Handler(FakeAdapter.over(backend), TOKEN))


def sender(handler: Handler, token: str | None = TOKEN) -> Send:
    def send(
        method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        about = {"Authorization": f"Bearer {token}"} if token is not None else {}
        answer = handler(method, f"/adapter/v1{path}", {**about, **(headers or {})}, io.BytesIO(raw))
        return answer.status, dict(answer.headers), b"".join(answer.body)

    return send


@pytest.fixture
def ref(send: Send) -> str:
    """A running instance, as a version 1 client knows it."""
    status, _, body = send("POST", "/instances", CREATE)
    assert status == 200
    made: str = json.loads(body)["ref"]
    return made


def code(body: bytes) -> str:
    found: str = json.loads(body)["error"]["code"]
    return found


EVERY_ROUTE = [
    ("GET", "/info"), ("GET", "/health"), ("GET", "/capacity"), ("GET", "/catalog"), ("GET", "/credential"),
    ("POST", "/observe"), ("POST", "/instances"), ("GET", "/instances?installation=x"), ("DELETE", "/instances"),
    ("GET", "/instances/r"), ("DELETE", "/instances/r"), ("POST", "/instances/r/exec"),
    ("POST", "/instances/r/exec?stream=1"), ("GET", "/instances/r/files?path=p"),
    ("GET", "/instances/r/files/content?path=p"), ("PUT", "/instances/r/files/content?path=p"),
    ("POST", "/instances/r/stop"), ("POST", "/instances/r/snapshots"), ("DELETE", "/snapshots/s"),
    ("POST", "/instances/r/ports"), ("GET", "/nothing"), ("PATCH", "/info"), ("GET", ""),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), EVERY_ROUTE)
@pytest.mark.parametrize(
    "header", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}, {"Authorization": TOKEN},
               {"Authorization": "Bearer "}, {"Authorization": "Bearer \udcff"}, {"Authorization": f"Bearer {TOKEN}x"}]
)  # fmt: skip
def test_every_route_wants_the_token(send: Send, method: str, path: str, header: dict[str, str]) -> None:
    status, headers, body = send(method, path, {}, {"Authorization": "", **header})
    assert (status, code(body)) == (401, "unauthenticated")
    assert headers["Differently-Adapter-Protocol"] == "1"
    assert TOKEN.encode() not in body


@pytest.mark.parametrize(("method", "path"), EVERY_ROUTE)
def test_every_answer_names_the_protocol(send: Send, method: str, path: str) -> None:
    assert send(method, path, {})[1]["Differently-Adapter-Protocol"] == "1"


def test_without_a_token_everybody_is_served_and_an_empty_one_is_a_mistake(backend: FakeBackend) -> None:
    assert sender(Handler(FakeAdapter.over(backend), None), None)("GET", "/health")[0] == 200
    with pytest.raises(ValueError, match="everybody"):
        Handler(FakeAdapter.over(backend), " ")


def test_a_caller_of_another_version_is_refused_before_anything_is_done(send: Send, backend: FakeBackend) -> None:
    status, _, body = send("POST", "/instances", CREATE, {"Differently-Adapter-Protocol": "2"})
    told = json.loads(body)["error"]
    assert (status, told["code"], told["details"]) == (503, "provider_unavailable", {"settled": True})
    assert "'2'" in told["message"]
    assert "'1'" in told["message"]
    assert backend.instances() == []


# A version 1 client, which sends no owner.


def test_a_version_1_client_is_served(send: Send, ref: str) -> None:
    instance = json.loads(send("GET", f"/instances/{ref}")[2])
    assert {"ref", "sandboxId", "state", "message"} <= instance.keys()
    assert (instance["ref"], instance["sandboxId"], instance["state"]) == (ref, "sbx_1", "running")
    assert json.loads(send("GET", "/instances?installation=inst_a")[2]) == [instance]
    assert json.loads(send("GET", "/instances?installation=inst_b")[2]) == []
    assert json.loads(send("POST", "/instances", CREATE)[2]) == instance
    result = json.loads(send("POST", f"/instances/{ref}/exec", {"command": "hi"})[2])
    assert (result["exitCode"], result["stdout"], result["truncated"]) == (0, "hi\n", False)
    assert send("PUT", f"/instances/{ref}/files/content?path=a/b", b"\x00\xff")[::2] == (204, b"")
    status, headers, body = send("GET", f"/instances/{ref}/files/content?path=a/b")
    assert (status, headers["Content-Type"], body) == (200, "application/octet-stream", b"\x00\xff")
    assert [entry["isDir"] for entry in json.loads(send("GET", f"/instances/{ref}/files?path=.")[2])] == [True]
    assert send("POST", f"/instances/{ref}/pause")[::2] == (204, b"")
    assert send("POST", f"/instances/{ref}/resume")[::2] == (204, b"")
    snapshot = json.loads(send("POST", f"/instances/{ref}/snapshots", {"kind": "disk"})[2])
    assert {"ref", "kind"} <= snapshot.keys()
    assert send("POST", "/instances", {**CREATE, "id": "sbx_2", "fromSnapshot": snapshot["ref"]})[0] == 200
    assert send("DELETE", f"/snapshots/{snapshot['ref']}")[0] == 204
    assert json.loads(send("POST", f"/instances/{ref}/ports", {"port": 80})[2])["url"].startswith("http")
    assert send("DELETE", f"/instances/{ref}")[0] == 204
    assert send("DELETE", f"/instances/{ref}")[0] == 204
    assert send("GET", f"/instances/{ref}")[0] == 404


def test_its_stream_is_text_whose_characters_are_whole() -> None:
    class Splitting(FakeAdapter):
        def exec_stream(self, *_: Any) -> Iterator[ExecEvent]:
            data = "é🙂x".encode()
            yield from (Output("stdout", data[at : at + 1]) for at in range(len(data)))
            yield Output("stderr", b"\xff\xc3")
            yield Exit(0, 5)

    send = sender(Handler(Splitting.over(FakeBackend(VirtualClock())), TOKEN))
    path = f"/instances/{with_owner('r', OWNER)}/exec?stream=1"
    status, headers, body = send("POST", path, {"command": "x"})
    lines = [json.loads(line) for line in body.splitlines()]
    assert (status, headers["Content-Type"]) == (200, "application/x-ndjson")
    assert [line["data"] for line in lines if line.get("stream") == "stdout"] == ["é", "🙂", "x"]
    assert "".join(line["data"] for line in lines if line.get("stream") == "stderr") == "\ufffd\ufffd"
    assert lines[-1]["exitCode"] == 0
    assert sum("exitCode" in line or "error" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (ExecUnconfirmed("lost"), {"error": "lost", "code": "exec_unconfirmed", "settled": False}),
        (InvalidState("paused"), {"error": "paused", "code": "invalid_state"}),
        (KeyError("a bug"), None),
        (None, None),
    ],
)
def test_a_stream_always_says_how_it_ended(raised: Exception | None, told: dict[str, Any] | None) -> None:
    class Breaking(FakeAdapter):
        def exec_stream(self, *_: Any) -> Iterator[ExecEvent]:
            yield Output("stdout", b"x")
            if raised is not None:
                raise raised

    send = sender(Handler(Breaking.over(FakeBackend(VirtualClock())), TOKEN))
    body = send("POST", f"/instances/{with_owner('r', OWNER)}/exec?stream=1", {"command": "x"})[2]
    last = json.loads(body.splitlines()[-1])
    assert last == told or (told is None and last["code"] == "exec_unconfirmed")


# Whose it is.


def test_two_owners_that_disagree_find_nothing(send: Send, ref: str, backend: FakeBackend) -> None:
    for method, path, body in (
        ("GET", f"/instances/{ref}", None), ("DELETE", f"/instances/{ref}", None),
        ("POST", f"/instances/{ref}/exec", {"command": "x"}), ("DELETE", f"/snapshots/{ref}", None),
    ):  # fmt: skip
        for headers in (
            {**AS_OWNER, "Differently-Sandbox-Id": "sbx_2"},
            {**AS_OWNER, "Differently-Installation": "inst_b"},
        ):
            status, _, answer = send(method, path, body, headers)
            assert (status, code(answer)) == (404, "not_found")
    assert len(backend.instances()) == 1


@pytest.mark.parametrize("name", ["nothing", "a~b", "~~", "r~sbx_1~inst_b", "%2e%2e", "r%2Fx"])
def test_a_ref_that_is_none_of_ours_names_nothing(send: Send, ref: str, name: str) -> None:
    assert send("GET", f"/instances/{name}")[0] == 404
    assert send("GET", f"/instances/{name}", None, AS_OWNER)[0] == 404


def test_by_owner_everything_of_it_is_meant(send: Send, ref: str, backend: FakeBackend) -> None:
    backend.plant(OWNER)
    one = "/instances?installation=inst_a&sandboxId=sbx_1"
    assert len(json.loads(send("GET", one)[2])) == 1
    assert send("DELETE", one)[0] == 204
    assert backend.instances() == []
    assert json.loads(send("GET", one)[2]) == []
    assert send("DELETE", one)[0] == 204
    for less in ("/instances?installation=inst_a", "/instances?sandboxId=sbx_1", "/instances"):
        assert send("DELETE", less)[0] == 400


@given(st.text(min_size=1), IDS, IDS)
def test_a_ref_carries_its_owner_whatever_it_is(ref: str, sandbox: str, installation: str) -> None:
    owner = Owner(installation, sandbox)
    assert without_owner(with_owner(ref, owner)) == (ref, owner)


# What is wrong with a request.


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nothing", None, 404),
        ("PATCH", "/info", None, 404),
        ("GET", "//info", None, 404),
        ("GET", "/info/", None, 404),
        ("POST", f"/instances/{with_owner('r', OWNER)}/dance", None, 404),
        ("GET", "/instances", None, 400),
        ("GET", "/instances?installation=", None, 400),
        ("GET", "/instances?installation=%ff", None, 400),
        ("GET", "/instances/%ff", None, 400),
        ("POST", "/instances", b"{cut", 400),
        ("POST", "/instances", b"[" * 100_000, 400),
        ("POST", "/instances", [], 400),
        ("POST", "/instances", {}, 400),
        ("POST", "/instances", {"id": "sbx_1"}, 400),
        ("POST", "/instances", {**CREATE, "resources": {"cpu": "lots"}}, 400),
        ("POST", "/instances", {**CREATE, "ttlSeconds": -1}, 400),
        ("POST", f"/instances/{with_owner('r', OWNER)}/exec", {}, 400),
        ("POST", f"/instances/{with_owner('r', OWNER)}/exec", {"command": "x", "args": ["y"]}, 400),
        ("POST", f"/instances/{with_owner('r', OWNER)}/ports", {"port": 0}, 400),
        ("POST", f"/instances/{with_owner('r', OWNER)}/snapshots", {"kind": "soul"}, 400),
        ("GET", f"/instances/{with_owner('r', OWNER)}/files", None, 400),
        ("GET", f"/instances/{with_owner('r', OWNER)}/jobs/j/stdout?offset=-1", None, 400),
    ],
)
def test_a_wrong_request_is_refused(send: Send, method: str, path: str, body: Any, status: int) -> None:
    found, headers, answer = send(method, path, body)
    assert found == status
    assert code(answer) in {"not_found", "invalid_request"}
    assert headers["Content-Type"] == "application/json"


def test_a_wrong_request_is_refused_without_repeating_what_it_holds(send: Send) -> None:
    env = {"SECRET": ["canary-value"]}
    assert b"canary" not in send("POST", "/instances", {**CREATE, "env": env})[2]


def test_json_is_bounded_and_files_are(send: Send, ref: str) -> None:
    big = {**CREATE, "env": {"A": "x" * JSON_BYTES_MAX}}
    status, _, body = send("POST", "/instances", big)
    assert (status, code(body)) == (413, "payload_too_large")

    class Zeros(io.RawIOBase):
        left = FILE_BYTES_MAX + 1

        def read(self, size: int = -1, /) -> bytes:
            given = min(size, self.left)
            self.left -= given
            return bytes(given)

    backend = FakeBackend(VirtualClock())
    handler = Handler(FakeAdapter.over(backend), None)
    name = with_owner(backend.plant(OWNER).ref, OWNER)
    answer = handler("PUT", f"/adapter/v1/instances/{name}/files/content?path=p", {}, Zeros())
    assert answer.status == 413


def test_what_is_not_known_in_a_request_is_no_matter(send: Send) -> None:
    assert send("POST", "/instances", {**CREATE, "futureField": {"a": 1}, "image": None})[0] == 200


# What the adapter says.


@pytest.mark.parametrize(
    ("error", "status", "settled"),
    [
        (InvalidRequest("x"), 400, None),
        (NotFound("x"), 404, None),
        (InvalidState("x"), 409, None),
        (PayloadTooLarge("x"), 413, None),
        (InsufficientCapacity("x"), 503, True),
        (SandboxFailed("x"), 503, False),
        (SandboxFailed("x", settled=True), 503, True),
        (ProviderUnavailable("x", settled=True), 503, True),
        (AdapterFault("x"), 500, False),
    ],
)
def test_an_error_is_an_envelope(
    send: Send, backend: FakeBackend, error: DifferentlyError, status: int, settled: bool | None
) -> None:
    error.details["limit"] = 7
    backend.expect(Operation.CREATE, Refuse(error))
    found, _, body = send("POST", "/instances", CREATE)
    told = json.loads(body)["error"]
    assert (found, told["code"], told["message"]) == (status, error.code, "x")
    assert told["details"] == ({"limit": 7} if settled is None else {"limit": 7, "settled": settled})


def test_a_bug_of_the_plugin_is_told_without_its_text(send: Send, backend: FakeBackend, ref: str) -> None:
    def broken(*_: Any) -> CommandResult:
        raise KeyError("canary")

    backend.exec_function = broken
    status, _, body = send("POST", f"/instances/{ref}/exec", {"command": "x"})
    assert (status, code(body)) == (500, "internal")
    assert b"canary" not in body


def test_only_what_is_declared_and_there_is_offered_and_the_rest_refused() -> None:
    class Little(FakeAdapter):
        operations: ClassVar[Declaration] = {
            **FakeAdapter.operations,
            Operation.PAUSE: Unsupported("no_pause"),
            Operation.RESUME: Unsupported("no_pause"),
        }

    send = sender(Handler(Little.over(FakeBackend(VirtualClock())), TOKEN))
    told = json.loads(send("GET", "/info")[2])
    assert "lifecycle.pause-resume" not in told["capabilities"]["features"]
    assert "pause" not in told["operations"]
    assert told["info"]["protocol"] == "1"
    status, _, body = send("POST", f"/instances/{with_owner('r', OWNER)}/pause")
    assert (status, code(body)) == (501, "unsupported_operation")


# Other servers.


def test_a_wsgi_server_can_carry_it(backend: FakeBackend) -> None:
    application = as_wsgi(Handler(FakeAdapter.over(backend), TOKEN))
    started: list[tuple[str, dict[str, str]]] = []

    def call(method: str, path: str, body: bytes = b"") -> Any:
        where, _, query = path.partition("?")
        environ = {
            "REQUEST_METHOD": method, "PATH_INFO": where, "QUERY_STRING": query, "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": io.BytesIO(body), "HTTP_AUTHORIZATION": f"Bearer {TOKEN}",
        }  # fmt: skip
        answer = application(environ, lambda status, headers: started.append((status, dict(headers))))
        return json.loads(b"".join(answer))

    made = call("POST", "/adapter/v1/instances", json.dumps(CREATE).encode())
    assert call("GET", f"/adapter/v1/instances/{made['ref']}") == made
    assert call("GET", "/adapter/v1/instances?installation=inst_a") == [made]
    assert started[0][0] == "200 OK"
    assert started[0][1]["Differently-Adapter-Protocol"] == "1"
