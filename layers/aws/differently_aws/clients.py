"""Clients of AWS services, each made when it is first asked for: a client costs a tenth of a second."""

from __future__ import annotations

import threading
from typing import Any

import botocore.session
from botocore.config import Config

CONNECT_SECONDS_MAX = 1.0
READ_SECONDS_MAX = 5.0
TRIES_MAX = 2


class Clients:
    """Safe to share between threads."""

    def __init__(self, region: str, endpoint: str | None = None) -> None:
        self._region = region
        self._endpoint = endpoint
        self._made: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._session: botocore.session.Session | None = None

    def client(self, service: str) -> Any:
        with self._lock:
            if service not in self._made:
                self._session = self._session or botocore.session.get_session()
                self._made[service] = self._session.create_client(
                    service, region_name=self._region, endpoint_url=self._endpoint,
                    config=Config(
                        connect_timeout=CONNECT_SECONDS_MAX, read_timeout=READ_SECONDS_MAX,
                        retries={"total_max_attempts": TRIES_MAX, "mode": "standard"},
                    ),
                )  # fmt: skip
            return self._made[service]
