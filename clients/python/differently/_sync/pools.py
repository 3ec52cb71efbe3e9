"""Pools, their kinds and their credentials: for operators."""

# Made from _async: python scripts/sync_client.py

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .._request import at, given, request
from ..models import Discovered, KindView, PoolDetailView, ReconcileReport, SecretView, Verified
from .paging import items
from .transport import Transport

Kinds = list[KindView]
Listing = list[PoolDetailView]
Reports = list[ReconcileReport]


class Pools:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def kinds(self) -> Kinds:
        """Every kind of pool, each with the JSON Schema of its configuration."""
        found = self._transport.document(request("GET", "/v1/admin/adapter-kinds"))
        return [KindView.from_dict(item) for item in found["items"]]

    def kind(self, name: str) -> KindView:
        asked = request("GET", at("/v1/admin/adapter-kinds/{}", name))
        return KindView.from_dict(self._transport.document(asked))

    def list(self, *, at_most: int | None = None) -> Iterator[PoolDetailView]:
        return items(self._transport, "/v1/admin/pools", PoolDetailView, at_most=at_most)

    def get(self, name: str) -> PoolDetailView:
        return PoolDetailView.from_dict(self._transport.document(request("GET", self._path(name))))

    def create(
        self, name: str, kind: str, *, max_concurrency: int, config: Mapping[str, Any] | None = None,
        credential: str | None = None, trust: str | None = None, region: str | None = None,
        cost_model: Mapping[str, float] | None = None, dry_run: bool = False,
    ) -> PoolDetailView:  # fmt: skip
        """Register one. `config` holds what its kind asks for; `kind` tells the fields. Never a secret."""
        body = given(
            name=name, adapter=kind, max_concurrency=max_concurrency, config=dict(config or {}),
            credential=credential, trust=trust, region=region, cost_model=dict(cost_model) if cost_model else None,
        )  # fmt: skip
        asked = request("POST", "/v1/admin/pools", query={"dryRun": dry_run}, body=body, repeat="refused")
        return PoolDetailView.from_dict(self._transport.document(asked))

    def update(
        self, name: str, changes: Mapping[str, Any], *, dry_run: bool = False, verify: bool = True
    ) -> PoolDetailView:  # fmt: skip
        """Change what is given, in the API's spelling; `config` is replaced as a whole."""
        query = {"dryRun": dry_run, "verify": None if verify else "false"}
        asked = request("PATCH", self._path(name), query=query, body=dict(changes))
        return PoolDetailView.from_dict(self._transport.document(asked))

    def delete(self, name: str, *, force: bool = False) -> None:
        """One that holds nothing; by force also one that does, and what runs at its backend stays there."""
        self._transport.document(request("DELETE", self._path(name), query={"force": force}, repeat="refused"))

    def use(self, name: str, *, approve_external: bool = False) -> Listing:
        """Send everything new to this one; the others drain."""
        body = {"approveExternal": approve_external}
        found = self._transport.document(request("POST", self._path(name, "/use"), body=body))
        return [PoolDetailView.from_dict(item) for item in found["items"]]

    def drain(self, name: str) -> PoolDetailView:
        return PoolDetailView.from_dict(self._transport.document(request("POST", self._path(name, "/drain"))))

    def undrain(self, name: str) -> PoolDetailView:
        return PoolDetailView.from_dict(self._transport.document(request("POST", self._path(name, "/undrain"))))

    def verify(self, name: str) -> Verified:
        """Try its credential; reads only."""
        return Verified.from_dict(self._transport.document(request("POST", self._path(name, "/verify"))))

    def discover(self, name: str) -> Discovered:
        """What its backend offers for configuration."""
        return Discovered.from_dict(self._transport.document(request("GET", self._path(name, "/discover"))))

    def reconcile(self, pool: str | None = None) -> Reports:
        """Compare backends with records now: one pool, or all."""
        found = self._transport.document(request("POST", "/v1/admin/reconcile", body=given(pool=pool)))
        return [ReconcileReport.from_dict(item) for item in found["items"]]

    def _path(self, name: str, tail: str = "") -> str:
        return at("/v1/admin/pools/{}", name) + tail


class Credentials:
    """Credentials of providers. Values go in and never come out."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, at_most: int | None = None) -> Iterator[SecretView]:
        return items(self._transport, "/v1/admin/secrets", SecretView, at_most=at_most)

    def get(self, name: str) -> SecretView:
        return SecretView.from_dict(self._transport.document(request("GET", self._path(name))))

    def put(self, name: str, fields: Mapping[str, str], *, verify: bool = True) -> SecretView:
        """Keep it; the fields, such as `api_key`, replace all that were kept."""
        query = {"verify": None if verify else "false"}
        asked = request("PUT", self._path(name), query=query, body={"fields": dict(fields)})
        return SecretView.from_dict(self._transport.document(asked))

    def delete(self, name: str, *, force: bool = False) -> None:
        self._transport.document(request("DELETE", self._path(name), query={"force": force}))

    def _path(self, name: str) -> str:
        return at("/v1/admin/secrets/{}", name)
