"""The way in: one server, one key, and everything that can be done there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

import httpx

from .._bodies import create_body
from .._request import request
from .._settings import resolve
from ..models import Capabilities, PlacementExplanation, Version
from .audit import AsyncAudit
from .catalog import AsyncProfiles, AsyncTemplates
from .pools import AsyncCredentials, AsyncPools
from .rules import AsyncPolicies, AsyncQueue, AsyncSecrets
from .sandbox import AsyncSandboxes
from .snapshots import AsyncSnapshots
from .spending import AsyncBudgets, AsyncTrust, AsyncUsage
from .tenancy import AsyncKeys, AsyncOrgs, AsyncProjects
from .transport import AsyncTransport
from .waiting import pause
from .webhooks import AsyncWebhooks


class AsyncClient:
    """A client of one server. Use it in a `with` block, or `close` it.

    Address and key are given here, or come from DIFFERENTLY_URL and DIFFERENTLY_API_KEY, a login that
    `differently login` keeps, or the `make run` of this folder; `operator` takes that one's operator key.
    """

    def __init__(
        self, url: str | None = None, api_key: str | None = None, *, login: str | None = None,
        operator: bool = False, transport: httpx.AsyncBaseTransport | None = None,
        _pause: Callable[[float], Awaitable[None]] = pause,
    ) -> None:  # fmt: skip
        self._transport = AsyncTransport(
            resolve(url, api_key, login, operator=operator), transport, _pause
        )  # fmt: skip
        self.sandboxes = AsyncSandboxes(self)
        self.snapshots = AsyncSnapshots(self)
        self.templates = AsyncTemplates(self._transport)
        self.profiles = AsyncProfiles(self._transport)
        self.secrets = AsyncSecrets(self._transport)
        self.queue = AsyncQueue(self._transport)
        self.pools = AsyncPools(self._transport)
        self.credentials = AsyncCredentials(self._transport)
        self.orgs = AsyncOrgs(self._transport)
        self.projects = AsyncProjects(self._transport)
        self.keys = AsyncKeys(self._transport)
        self.policies = AsyncPolicies(self._transport)
        self.usage = AsyncUsage(self._transport)
        self.trust = AsyncTrust(self._transport)
        self.budgets = AsyncBudgets(self._transport)
        self.audit = AsyncAudit(self._transport)
        self.webhooks = AsyncWebhooks(self._transport)

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

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        await self.close()

    async def version(self) -> Version:
        """The server's."""
        return Version.from_dict(await self._transport.document(request("GET", "/version")))

    async def capabilities(self) -> Capabilities:
        """The pools that this key may use, and what each can do."""
        return Capabilities.from_dict(await self._transport.document(request("GET", "/v1/capabilities")))

    async def explain(self, **options: Any) -> PlacementExplanation:
        """What a create with these options would meet, pool by pool. Nothing is made."""
        asked = request("POST", "/v1/placement/explain", body=create_body(**options))
        return PlacementExplanation.from_dict(await self._transport.document(asked))
