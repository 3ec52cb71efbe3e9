"""What is known of a pool, how it is known, and what follows from the settings: pure, for the trust report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from pydantic import JsonValue

from ..contract import Registration, Verification
from ..model import features
from ..model.pool import Pool, PoolView, Trust
from ..model.usage import Price


class Known(StrEnum):
    """How far the isolation of a pool's instances can be relied on."""

    CONFIRMED = "confirmed"
    """Seen by us: it follows from how instances are made here."""
    DECLARED = "declared"
    """Said by the kind, the operator or the plugin, and proved by nobody."""
    UNKNOWN = "unknown"
    """Nobody said it, or no probe has succeeded yet."""


@dataclass(frozen=True)
class Isolation:
    """`by` is who says so: `kind`, `configuration`, `plugin` or `us`."""

    value: str | None
    known: Known
    by: str | None


def isolation_of(pool: Pool, view: PoolView | None, told: Registration, *, speaks_for_others: bool) -> Isolation:
    """`speaks_for_others`: the kind stands for any backend, which says itself what it is."""
    value = view.isolation if view is not None else ""
    if not value:
        return Isolation(None, Known.UNKNOWN, None)
    if told.dev_only:
        return Isolation(value, Known.CONFIRMED, "us")
    if speaks_for_others:
        return Isolation(value, Known.DECLARED, "plugin")
    by = "configuration" if "isolation" in told.config.model_fields else "kind"
    return Isolation(value, Known.DECLARED, by)


def endpoint_of(pool: Pool, told: Registration) -> Mapping[str, str]:
    """What of the configuration says where the backend is. Of an address only the host: no user, path or query."""
    found: dict[str, str] = {}
    for field in told.identity_fields:
        name = told.wire_name(field)
        value = pool.config.get(name)
        if isinstance(value, (str, int, bool)):
            found[name] = _host(value)
    return found


def _host(value: JsonValue) -> str:
    text = str(value)
    if "://" not in text:
        return text.rpartition("@")[2]
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
        return f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}"
    except ValueError:
        return "an address that cannot be read"


def limitations(
    pool: Pool, view: PoolView | None, told: Registration, isolation: Isolation, *, secrets_in_env: bool
) -> Iterator[str]:
    """What an operator must know who answers for this pool: whole sentences, each following from what is set."""
    if isolation.known is Known.UNKNOWN:
        yield "Its isolation is not known: no probe has succeeded since this installation could tell."
    elif isolation.value == "none":
        yield "Its instances are not isolated from the machine that they run on."
    elif isolation.known is Known.DECLARED:
        yield f"Its isolation ({isolation.value}) is declared by the {isolation.by}; nothing here can prove it."
    if pool.trust is Trust.EXTERNAL:
        yield "What sandboxes hold leaves this installation: their files, environment and output are with the provider."
    elif told.trust is None:
        yield "That it is private is what its operator declared; nothing here can prove it."
    if told.verification is not Verification.LIVE:
        yield f"Its adapter was never run against the service itself; the most real test was against a {_test(told)}."
    if view is None or not view.features:
        yield "What it can do is not known yet, so what needs a capability may be placed there and fail."
    elif features.EGRESS_CONTROL not in view.features:
        yield "It cannot limit what sandboxes reach: those with egress rules are never placed there."
    if view is not None and not view.healthy:
        yield "It does not answer at present; nothing new is placed there, and what it holds cannot be looked at."
    if pool.credential is not None and pool.credential.startswith(("env:", "file:")):
        yield "Its credential lies outside of the store, so it is replaced by a new start of the processes."
    if secrets_in_env:
        yield "The global policy lets secrets of projects enter its sandboxes as environment variables."
    if Price.of(pool.cost_model) is None:
        yield "It has no prices, so what runs there is in no cost."
    yield from told.limits


def _test(told: Registration) -> str:
    return {Verification.FAKE: "stand-in of ours"}.get(told.verification, told.verification.value)
