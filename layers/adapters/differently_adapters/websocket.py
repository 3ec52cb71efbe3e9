"""Messages over a WebSocket (RFC 6455), as far as backends need it whose commands travel so: text, no extensions.

It goes over the pool's own HTTP client, so the same rules hold for whom it may reach, how long, and what errors tell.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from differently_core.errors import DifferentlyError, ProviderUnavailable
from differently_core.runtime.clock import Clock
from differently_core.runtime.ids import SystemIds

from .http import Call, Deadlines, Http, Streamed

MESSAGE_BYTES_MAX: Final = 8 * 1024 * 1024
TEXT, CLOSE, PONG = 0x1, 0x8, 0xA
_LAST: Final = 0x80
_MASKED: Final = 0x80
_RESERVED: Final = 0x70
_GUID: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_SMALL_MAX: Final = 125
_LONG, _LONGER = 126, 127


class WebSocket:
    """The client's side of one that is open."""

    def __init__(self, wire: Streamed, secret: str) -> None:
        """`secret` is what masks are made of, which nobody on the way may guess."""
        self._wire = wire
        self._secret = secret.encode()
        self._sent = 0
        self._held = bytearray()

    def send(self, text: str) -> None:
        self._frame(TEXT, text.encode())

    def messages(self) -> Iterator[str]:
        """What the other side says, until it closes or goes away; `ProviderUnavailable` for what is no WebSocket."""
        message: bytearray | None = None
        while (head := self._take(2)) is not None:
            kind, length = head[0] & 0x0F, head[1]
            if head[0] & _RESERVED or length & _MASKED:
                raise _broken()
            if length in {_LONG, _LONGER}:
                told = self._take(2 if length == _LONG else 8)
                if told is None:
                    return
                length = int.from_bytes(told, "big")
            if length + len(message or b"") > MESSAGE_BYTES_MAX:
                raise ProviderUnavailable("The backend sent a message that is too long.")
            data = self._take(length)
            if data is None or kind == CLOSE:
                return
            match kind:
                case 0x9:  # a ping, which wants its pong
                    self._frame(PONG, data)
                    continue
                case 0xA:
                    continue
                case 0x1 | 0x2 if message is None:
                    message = bytearray(data)
                case 0x0 if message is not None:
                    message += data
                case _:
                    raise _broken()
            if head[0] & _LAST:
                yield _text(message)
                message = None

    def close(self) -> None:
        """Say that this is the end, to whoever still listens."""
        with suppress(DifferentlyError):
            self._frame(CLOSE, b"")

    def _take(self, count: int) -> bytes | None:
        """So many bytes; None when the other side went away before."""
        while len(self._held) < count:
            data = self._wire.receive()
            if not data:
                return None
            self._held += data
        taken = bytes(self._held[:count])
        del self._held[:count]
        return taken

    def _frame(self, kind: int, data: bytes) -> None:
        size = len(data)
        if size <= _SMALL_MAX:
            length = bytes([_MASKED | size])
        elif size < 1 << 16:
            length = bytes([_MASKED | _LONG]) + size.to_bytes(2, "big")
        else:
            length = bytes([_MASKED | _LONGER]) + size.to_bytes(8, "big")
        self._sent += 1
        mask = hashlib.sha256(self._secret + self._sent.to_bytes(8, "big")).digest()[:4]
        self._wire.send(bytes([_LAST | kind]) + length + mask + masked(data, mask))


@contextmanager
def web_socket(http: Http, path: str, deadlines: Deadlines, clock: Clock) -> Iterator[WebSocket]:
    """An open one; `deadlines` bound all of its life. What fails before it is open is settled: nothing was said yet."""
    secret = SystemIds(clock).secret()
    key = base64.b64encode(hashlib.sha256(secret.encode()).digest()[:16]).decode()
    asked = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13", "sec-websocket-key": key}
    with http.switched(Call("GET", path, deadlines, headers=asked, mutates=False)) as wire:
        if wire.headers.get("sec-websocket-accept") != accept_of(key):
            raise ProviderUnavailable("The backend does not speak WebSocket.", settled=True)
        socket = WebSocket(wire, secret)
        try:
            yield socket
        finally:
            socket.close()


def accept_of(key: str) -> str:
    """What a server answers to a key, which proves that it read it."""
    return base64.b64encode(hashlib.sha1(f"{key}{_GUID}".encode(), usedforsecurity=False).digest()).decode()


def masked(data: bytes, mask: bytes) -> bytes:
    size = len(data)
    whole = (mask * (size // len(mask) + 1))[:size]
    return (int.from_bytes(data, "big") ^ int.from_bytes(whole, "big")).to_bytes(size, "big")


def _text(message: bytearray) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        pass
    raise _broken()


def _broken() -> ProviderUnavailable:
    return ProviderUnavailable("The backend sent something that is not WebSocket.")
