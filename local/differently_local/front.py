"""The HTTP server of `make run`: a listener, and a bounded number of connections with a thread each."""

from __future__ import annotations

import contextlib
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
SPARE_SECONDS = 1.0
"""How long a connection must have been idle to be closed for a new one: on a younger one a request may be coming."""
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
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self._listener.getsockname()[1]}"

    def start(self, answer: Answerer) -> None:
        self._listener.settimeout(ACCEPT_SECONDS)
        threading.Thread(target=self._accept, args=(answer,), name="accept", daemon=True).start()

    def close(self) -> None:
        """Give the port back."""
        with contextlib.suppress(OSError):
            # A thread that waits in `accept` would keep the socket listening although it is closed.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """Take nothing new, let what runs finish, then cut it; True when nothing had to be cut."""
        end = time.monotonic() + seconds
        with self._changed:
            self._stopping = True
            self._close_idle()
        self.close()
        with self._changed:
            while self._open and (left := end - time.monotonic()) > 0:
                self._changed.wait(min(left, 0.1))
                self._close_idle()
            cut = len(self._open)
            for connection in self._open:
                connection.close()
        return cut == 0

    def _accept(self, answer: Answerer) -> None:
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
            # A line of a command's output goes out now, not when more has gathered.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(sock, peer[0], answer, self._clock, self._ids)
            with self._changed:
                self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), name="connection", daemon=True).start()

    def _make_room(self) -> None:
        """Wait below the bound; those who come meanwhile wait in the backlog."""
        with self._changed:
            while len(self._open) >= CONNECTIONS_MAX and not self._stopping:
                self._close_idle(SPARE_SECONDS)
                self._changed.wait(ACCEPT_SECONDS)

    def _close_idle(self, seconds: float = 0.0) -> None:
        now = time.monotonic()
        for connection in self._open:
            since = connection.idle_since
            if since is not None and now - since >= seconds:
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
