"""Kinds of pools, as each publishes itself: consoles and commands show what stands here and name no kind."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from differently_adapters.registry import KINDS, TrustList, load
from differently_core.contract import Need, Supported, Verification
from differently_core.errors import NotFound
from differently_core.model.record import Wire

from ..route import Access, Call, Group, Method, NoBody, NoQuery, Route


class CredentialNeed(Wire):
    """The credential of a pool of the kind. Its fields are write-only and stand in no configuration."""

    need: Need
    fields: list[str]


class KindView(Wire):
    kind: str
    summary: str
    trust: TrustList
    """Who says whether its pools are private or external."""
    verification: Verification
    """The most real thing that it was tested against."""
    config: dict[str, Any] = Field(json_schema_extra={"additionalProperties": True})
    """JSON Schema of a pool's `config`."""
    identity: list[str]
    """Fields of `config` that say which backend a pool leads to; they stay while the pool holds anything."""
    credential: CredentialNeed
    limits: list[str]
    """What it cannot do, or does otherwise than one would expect."""
    unsupported: dict[str, str]
    """Operations that it does not offer, each with its reason."""

    @classmethod
    def of(cls, kind: str) -> Self:
        loaded = load(kind)
        told = loaded.registration
        declared = loaded.adapter.operations.items()
        return cls(
            kind=kind, summary=told.summary, trust=KINDS[kind].trust, verification=told.verification,
            config=told.schema(), identity=[told.wire_name(field) for field in told.identity_fields],
            credential=CredentialNeed(
                need=told.requirements.credential, fields=list(told.requirements.credential_fields)
            ),
            limits=list(told.limits),
            unsupported={
                operation.value: support.reason for operation, support in declared if not isinstance(support, Supported)
            },
        )  # fmt: skip


class KindList(Wire):
    items: list[KindView]


def list_adapter_kinds(call: Call[NoBody, NoQuery]) -> KindList:
    return KindList(items=[KindView.of(kind) for kind in sorted(KINDS)])


def get_adapter_kind(call: Call[NoBody, NoQuery]) -> KindView:
    kind = call.params["kind"]
    if kind not in KINDS:
        raise NotFound(f"There is no adapter kind {kind[:64]!r}; known kinds: {', '.join(sorted(KINDS))}.")
    return KindView.of(kind)


ROUTES = (
    Route(
        Method.GET, "/v1/admin/adapter-kinds", Group.ADMIN, Access.OPERATOR, list_adapter_kinds,
        "List the kinds of pools", NoBody, NoQuery, KindList,
        description="What each asks for, with the JSON Schema of its configuration.",
    ),
    Route(
        Method.GET, "/v1/admin/adapter-kinds/{kind}", Group.ADMIN, Access.OPERATOR, get_adapter_kind,
        "Read one kind of pools", NoBody, NoQuery, KindView, errors=(NotFound,),
    ),
)  # fmt: skip
