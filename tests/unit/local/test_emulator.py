"""Only what gives the marker back is our emulator."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from differently_core.runtime.clock import SystemClock
from differently_core.runtime.ids import SystemIds
from differently_local import emulator
from differently_local.emulator import Emulator, Found, proves
from differently_local.failure import StartFailure
from differently_local.signals import StopRequest


@contextmanager
def answering(body: bytes, status: int = 200) -> Iterator[int]:
    """The port of a server that answers everything with this."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.mark.parametrize("body", [b"", b"not json", b"[]", b"{}", b'{"edition": "light"}', b'{"edition": null}'])
def test_somebody_elses_server_proves_nothing(body: bytes) -> None:
    with answering(body) as port:
        assert not proves(Found(1, port, "marker"))


def test_the_marker_proves_it() -> None:
    with answering(b'{"edition": "marker"}') as port:
        assert proves(Found(1, port, "marker"))
        assert not proves(Found(1, port, "another"))


def test_a_port_that_nobody_listens_on_proves_nothing() -> None:
    with answering(b"") as port:
        pass
    assert not proves(Found(1, port, "marker"))


def an_emulator(data_dir: Path, python: Path) -> Emulator:
    return Emulator(data_dir, python, SystemIds(SystemClock()), StopRequest(), lambda text: None)


def test_a_missing_environment_is_told(tmp_path: Path) -> None:
    with pytest.raises(StartFailure, match="environment is missing"):
        an_emulator(tmp_path, tmp_path / "no-python").obtain()


def test_one_that_cannot_start_is_told_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "PORTS_MAX", 2)
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such module >&2\nexit 1\n")
    broken.chmod(0o700)
    made = an_emulator(tmp_path, broken)
    with pytest.raises(StartFailure, match=r"does not start; .*emulator\.log"):
        made.obtain()
    assert (tmp_path / "emulator.log").read_text() == "no such module\n"
    assert not made.alive()
    made.stop()
