"""The way in: one server, one key, and everything that can be done there."""

# Made from _async: python scripts/sync_client.py

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

import httpx

from .._bodies import create_body
from .._request import request
from .._settings import resolve
from ..models import Capabilities, PlacementExplanation, Version
from .audit import Audit
from .catalog import Profiles, Templates
from .pools import Credentials, Pools
from .rules import Policies, Queue, Secrets
from .sandbox import Sandboxes
from .snapshots import Snapshots
from .spending import Budgets, Trust, Usage
from .tenancy import Keys, Orgs, Projects
from .transport import Transport
from .waiting import pause
from .webhooks import Webhooks


class Client:
    """A client of one server. Use it in a `with` block, or `close` it.

    Address and key are given here, or come from DIFFERENTLY_URL and DIFFERENTLY_API_KEY, a login that
    `differently login` keeps, or the `make run` of this folder; `operator` takes that one's operator key.
    """

    def __init__(
        self, url: str | None = None, api_key: str | None = None, *, login: str | None = None,
        operator: bool = False, transport: httpx.BaseTransport | None = None,
        _pause: Callable[[float], None] = pause,
    ) -> None:  # fmt: skip
        self._transport = Transport(
            resolve(url, api_key, login, operator=operator), transport, _pause
        )  # fmt: skip
        self.sandboxes = Sandboxes(self)
        self.snapshots = Snapshots(self)
        self.templates = Templates(self._transport)
        self.profiles = Profiles(self._transport)
        self.secrets = Secrets(self._transport)
        self.queue = Queue(self._transport)
        self.pools = Pools(self._transport)
        self.credentials = Credentials(self._transport)
        self.orgs = Orgs(self._transport)
        self.projects = Projects(self._transport)
        self.keys = Keys(self._transport)
        self.policies = Policies(self._transport)
        self.usage = Usage(self._transport)
        self.trust = Trust(self._transport)
        self.budgets = Budgets(self._transport)
        self.audit = Audit(self._transport)
        self.webhooks = Webhooks(self._transport)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        return self._transport.settings.url

    @property
    def source(self) -> str:
        """Where address and key came from."""
        return self._transport.settings.source

    @property
    def project(self) -> str | None:
        """The project that the source of the key names, if it names one."""
        return self._transport.settings.project

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self.close()

    def version(self) -> Version:
        """The server's."""
        return Version.from_dict(self._transport.document(request("GET", "/version")))

    def capabilities(self) -> Capabilities:
        """The pools that this key may use, and what each can do."""
        return Capabilities.from_dict(self._transport.document(request("GET", "/v1/capabilities")))

    def explain(self, **options: Any) -> PlacementExplanation:
        """What a create with these options would meet, pool by pool. Nothing is made."""
        asked = request("POST", "/v1/placement/explain", body=create_body(**options))
        return PlacementExplanation.from_dict(self._transport.document(asked))
