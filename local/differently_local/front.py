"""The HTTP server of `make run`: a listener, and a bounded number of connections with a thread each."""

from __future__ import annotations

import logging
import socket
import threading
import time

from differently_core.runtime.clock import Clock
from differently_core.runtime.ids import IdSource

from .connection import Answerer, Connection
from .failure import StartFailure

log = logging.getLogger(__name__)
BACKLOG = 256
CONNECTIONS_MAX = 512
CROWDED = CONNECTIONS_MAX * 3 // 4
"""From here on connections are closed after each answer, so that nobody waits behind idle ones."""
ACCEPT_SECONDS = 0.5
STOP_SECONDS = 2.0


class Front:
    """Bound from the beginning, so that a taken port is known before anything else is made."""

    def __init__(self, host: str, port: int, clock: Clock, ids: IdSource) -> None:
        self._clock = clock
        self._ids = ids
        self._open: set[Connection] = set()
        self._changed = threading.Condition()
        self._stopping = False
        self._listener = _listen(host, port)
        self._accepting: threading.Thread | None = None

    @property
    def url(self) -> str:
        host, port = self._listener.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def start(self, answer: Answerer) -> None:
        self._accepting = threading.Thread(target=self._accept, args=(answer,), name="accept", daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """Give the port back; for a start that did not get as far as `start`."""
        self._listener.close()

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """Take nothing new, let what runs finish, then cut it; True when nothing had to be cut."""
        end = time.monotonic() + seconds
        with self._changed:
            self._stopping = True
            self._close_idle()
        self._listener.close()
        with self._changed:
            while self._open and (left := end - time.monotonic()) > 0:
                self._changed.wait(min(left, 0.1))
                self._close_idle()
            cut = len(self._open)
            for connection in self._open:
                connection.close()
        return cut == 0

    def _accept(self, answer: Answerer) -> None:
        self._listener.settimeout(ACCEPT_SECONDS)
        while not self._stopping:
            self._make_room()
            try:
                sock, peer = self._listener.accept()
            except TimeoutError:
                continue
            except OSError as error:
                if not self._stopping:
                    log.error("no connection could be taken", extra={"why": error.strerror})
                    time.sleep(0.1)
                continue
            sock.settimeout(None)
            connection = Connection(sock, peer[0], answer, self._clock, self._ids)
            with self._changed:
                self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), name="connection", daemon=True).start()

    def _make_room(self) -> None:
        """Wait below the bound; those who come meanwhile wait in the backlog."""
        with self._changed:
            while len(self._open) >= CONNECTIONS_MAX and not self._stopping:
                self._close_idle()
                self._changed.wait(ACCEPT_SECONDS)

    def _close_idle(self) -> None:
        for connection in self._open:
            if connection.idle:
                connection.close()

    def _serve(self, connection: Connection) -> None:
        try:
            connection.serve(lambda: not self._stopping and len(self._open) < CROWDED)
        except Exception:
            log.exception("connection failed")
        finally:
            with self._changed:
                self._open.discard(connection)
                self._changed.notify_all()


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        # A port in TIME_WAIT may be taken; one that somebody listens on may not.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise StartFailure(
            f"Port {port} of {host} cannot be used ({error.strerror}). Choose another one: PORT=8081 make run."
        ) from error
    return listener
