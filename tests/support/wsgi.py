"""The gateway as a WSGI application, for tools that drive one in process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from tests.support.api import World

StartResponse = Callable[[str, list[tuple[str, str]]], Any]


class Gateway:
    def __init__(self, world: World) -> None:
        self._world = world

    def lead(self, world: World) -> None:
        """Stand in front of this one from now on."""
        self._world = world

    def __call__(self, environ: Mapping[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        path = quote(environ["PATH_INFO"].encode("latin-1"), safe="/:@!$&'()*+,;=-._~")
        query = environ.get("QUERY_STRING", "")
        length = int(environ.get("CONTENT_LENGTH") or 0)
        headers = {
            name.removeprefix("HTTP_").replace("_", "-").title(): value
            for name, value in environ.items()
            if name.startswith("HTTP_")
        }
        event = self._world.event(environ["REQUEST_METHOD"], f"{path}?{query}", headers=headers)
        event["path"] = path
        event.update(self._body(environ["wsgi.input"].read(length)))
        reply = self._world.deliver(event)
        start_response(f"{reply.status} {reply.status}", list(reply.headers.items()))
        return list(reply.chunks)

    def _body(self, data: bytes) -> dict[str, Any]:
        sent = self._world.event("POST", "/", data)
        return {"body": sent["body"], "isBase64Encoded": True} if data else {}
