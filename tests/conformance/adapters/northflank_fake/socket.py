"""The server's side of a WebSocket, over the two ends of a connection."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any, BinaryIO

PIECE = 65_536


class ServerSocket:
    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._lock = threading.Lock()
        self.pongs: list[bytes] = []

    def tell(self, kind: str, data: Any) -> None:
        """In two frames with a ping between them, as any server may."""
        text = json.dumps({"type": kind, "data": data}).encode()
        middle = len(text) // 2
        self.frame(0x01, text[:middle])
        self.frame(0x89, b"are you there")
        self.frame(0x80, text[middle:])

    def frame(self, head: int, data: bytes) -> None:
        size = len(data)
        if size <= 125:
            length = bytes([size])
        elif size < 1 << 16:
            length = b"\x7e" + size.to_bytes(2, "big")
        else:
            length = b"\x7f" + size.to_bytes(8, "big")
        with self._lock:
            self._outgoing.write(bytes([head]) + length + data)

    def heard(self) -> Iterator[dict[str, Any]]:
        """Until the client closes or goes away. A client must mask what it sends."""
        while len(head := self._incoming.read(2)) == 2:
            assert head[1] & 0x80, "a client masks what it sends"
            size = head[1] & 0x7F
            if size >= 126:
                size = int.from_bytes(self._incoming.read(2 if size == 126 else 8), "big")
            mask = self._incoming.read(4)
            data = bytes(byte ^ mask[place % 4] for place, byte in enumerate(self._incoming.read(size)))
            match head[0]:
                case 0x81:
                    yield json.loads(data)
                case 0x8A:
                    self.pongs.append(data)
                case _:
                    return
