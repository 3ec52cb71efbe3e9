"""The client in front of a `World`: its requests go through authorizer and handlers, and work behind them is done."""

from __future__ import annotations

from collections.abc import Callable

import httpx

from differently import AsyncClient, Client
from tests.support.api import World

URL = "https://sandboxes.test"
STAGING = "staging.example"


class WorldTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Answers as the API does. `before` sees each request first, and may answer in its place or raise."""

    def __init__(self, world: World, *, settles: bool = True) -> None:
        self.world = world
        self.settles = settles
        self.seen: list[httpx.Request] = []
        self.pieces: list[int] = []
        """How long each piece was of the request that was seen last."""
        self.before: Callable[[httpx.Request], httpx.Response | None] = lambda request: None
        self.after: Callable[[httpx.Request, httpx.Response], None] = lambda request, response: None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.SyncByteStream)
        return self._answer(request, list(request.stream))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.AsyncByteStream)
        return self._answer(request, [piece async for piece in request.stream])

    def _answer(self, request: httpx.Request, pieces: list[bytes]) -> httpx.Response:
        content = b"".join(pieces)
        self.seen.append(request)
        self.pieces = [len(piece) for piece in pieces]
        instead = self.before(request)
        if instead is not None:
            return instead
        if request.url.host == STAGING:
            url = f"https://{STAGING}{request.url.raw_path.decode()}"
            return httpx.Response(200 if self.world.staging.send({"url": url}, content) else 400)
        is_binary = request.headers.get("content-type") == "application/octet-stream"
        body = content if is_binary else content.decode() or None
        headers = {name.title(): value for name, value in request.headers.items()}
        reply = self.world.call(request.method, request.url.raw_path.decode(), body, headers=headers)
        response = httpx.Response(reply.status, headers=dict(reply.headers), content=reply.raw)
        if self.settles:
            self.world.pass_time(0)
        self.after(request, response)
        return response

    def paths(self) -> list[str]:
        return [f"{request.method} {request.url.path}" for request in self.seen]


def client_of(world: World, token: str, *, settles: bool = True) -> tuple[Client, WorldTransport]:
    """Waits of the client move the world's clock."""
    transport = WorldTransport(world, settles=settles)
    return Client(URL, token, transport=transport, _pause=world.pass_time), transport


def async_client_of(world: World, token: str) -> tuple[AsyncClient, WorldTransport]:
    transport = WorldTransport(world)

    async def pause(seconds: float) -> None:
        world.pass_time(seconds)

    return AsyncClient(URL, token, transport=transport, _pause=pause), transport
