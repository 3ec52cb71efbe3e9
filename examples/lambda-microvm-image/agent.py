"""The agent of a MicroVM image: answers AWS's lifecycle hooks, and starts execd once it knows for whom it works.

AWS boots the image once, takes a snapshot when `/ready` was answered, and makes every MicroVM from that. So nothing
that belongs to one sandbox may start before `/run`, whose body names the owner and the environment. It needs nothing
but Python's standard library.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HOOKS = "/aws/lambda-microvms/runtime/v1/"
PORT = int(os.environ.get("HOOK_PORT", "9000"))
EXECD = os.environ.get("EXECD_COMMAND", "/usr/local/bin/execd").split()
OWNER = Path(os.environ.get("OWNER_PATH", "/run/differently/owner.json"))


def run(body: bytes) -> None:
    """Write down whose the sandbox is, then let commands in. Raises for a body that is not the control plane's."""
    told = json.loads(body)
    owner = {"installation": str(told["installation"]), "sandbox": str(told["sandbox"])}
    env = {str(name): str(value) for name, value in told.get("env", {}).items()}
    OWNER.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    new = OWNER.with_suffix(".new")
    new.write_text(json.dumps(owner))
    new.chmod(0o444)
    new.replace(OWNER)
    # execd holds every stream for a second after its end unless told otherwise.
    environment = {"EXECD_API_GRACE_SHUTDOWN": "50ms", **os.environ, **env}
    subprocess.Popen(EXECD, env=environment, start_new_session=True)


class Hooks(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        status = 200
        if self.path == f"{HOOKS}run":
            try:
                run(body)
            except (ValueError, KeyError, TypeError, OSError):
                status = 500  # AWS then ends the MicroVM; the body may hold secrets, so it is not told
        elif not self.path.startswith(HOOKS):
            status = 404
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("", PORT) if len(sys.argv) < 2 else (sys.argv[1], PORT), Hooks)
    print(server.server_port, flush=True)
    server.serve_forever()
