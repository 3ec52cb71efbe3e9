"""What creates start from: templates and profiles."""

# Made from _async: python scripts/sync_client.py

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .._request import at, given, once, request
from ..models import ProfileView, TemplateView
from .paging import items
from .transport import Transport


class Templates:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, at_most: int | None = None) -> Iterator[TemplateView]:
        return items(self._transport, "/v1/templates", TemplateView, at_most=at_most)

    def get(self, name: str) -> TemplateView:
        return TemplateView.from_dict(self._transport.document(request("GET", at("/v1/templates/{}", name))))

    def put(
        self, name: str, *, images: Mapping[str, str] | None = None, resources: Mapping[str, Any] | None = None,
        version: int | None = None,
    ) -> TemplateView:  # fmt: skip
        """Make or replace one. `images` leads from pool to image; `version` names the one that is replaced."""
        body = given(images=dict(images or {}), resources=dict(resources or {}), version=version)
        asked = request("PUT", at("/v1/templates/{}", name), body=body, repeat=once(version))
        return TemplateView.from_dict(self._transport.document(asked))

    def delete(self, name: str) -> None:
        self._transport.document(request("DELETE", at("/v1/templates/{}", name)))


class Profiles:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, at_most: int | None = None) -> Iterator[ProfileView]:
        return items(self._transport, "/v1/profiles", ProfileView, at_most=at_most)

    def get(self, name: str) -> ProfileView:
        return ProfileView.from_dict(self._transport.document(request("GET", at("/v1/profiles/{}", name))))

    def put(
        self, name: str, defaults: Mapping[str, Any], *, description: str | None = None, version: int | None = None
    ) -> ProfileView:  # fmt: skip
        """Make or replace one. `defaults` are fields of a create, in the API's spelling."""
        body = given(defaults=dict(defaults), description=description, version=version)
        asked = request("PUT", at("/v1/profiles/{}", name), body=body, repeat=once(version))
        return ProfileView.from_dict(self._transport.document(asked))

    def delete(self, name: str) -> None:
        self._transport.document(request("DELETE", at("/v1/profiles/{}", name)))
