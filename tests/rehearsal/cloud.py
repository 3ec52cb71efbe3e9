"""The CDK's command line against an emulator on this machine, and against nothing else ever."""

from __future__ import annotations

import ipaddress
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import botocore.session
from botocore.config import Config

from differently_infra.packaging import ROOT

REGION: Final = "us-east-1"
ACCOUNT: Final = "000000000000"
CLI: Final = ROOT / "infra" / "cli" / "node_modules" / ".bin" / "cdk"
COMMAND_SECONDS_MAX: Final = 300.0


class NotLoopback(Exception):
    """The endpoint could be anything but this machine."""


def require_loopback(endpoint: str) -> str:
    """The endpoint itself; raises `NotLoopback`. Without this the same commands would go to a real account."""
    host = urlsplit(endpoint).hostname or ""
    try:
        if ipaddress.ip_address(host).is_loopback and urlsplit(endpoint).scheme == "http":
            return endpoint
    except ValueError:
        pass
    raise NotLoopback(f"{endpoint!r} is no loopback address; the rehearsal deploys nowhere else.")


class Cloud:
    """`home` is where the command line keeps what it remembers of accounts."""

    def __init__(self, endpoint: str, home: Path, packages: Path) -> None:
        self.endpoint = require_loopback(endpoint)
        self._home = home
        self._packages = packages
        self._session = botocore.session.get_session()

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of the caller's shell that could name an account, a profile, a Region or a proxy."""
        return {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self._home),
            "AWS_ENDPOINT_URL": require_loopback(self.endpoint),
            # The command line remembers accounts by key id; this one is used for nothing else.
            "AWS_ACCESS_KEY_ID": "differently-rehearsal",
            "AWS_SECRET_ACCESS_KEY": "not-a-secret",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "NO_PROXY": "127.0.0.1,localhost",
        }

    def cdk(self, *arguments: str, config: Path | None = None) -> str:
        """What it printed; an assertion error with all of it when it fails."""
        context = ["-c", f"packages={self._packages}", *(["-c", f"config={config}"] if config is not None else [])]
        command = [str(CLI), *arguments, *context, "--no-notices", "--output", str(self._home / "cdk.out")]
        return self._run(command)

    def admin(self, *arguments: str, config: Path | None = None) -> str:
        chosen = ["--config", str(config)] if config is not None else []
        return self._run([sys.executable, "-m", "differently_infra.admin", *chosen, *arguments])

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=COMMAND_SECONDS_MAX, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def client(self, service: str) -> Any:
        return self._session.create_client(
            service, endpoint_url=require_loopback(self.endpoint), region_name=REGION,
            aws_access_key_id="differently-rehearsal", aws_secret_access_key="not-a-secret",
            config=Config(proxies={}, retries={"total_max_attempts": 1}),
        )  # fmt: skip
