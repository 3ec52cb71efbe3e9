"""Storing a profile: what no pool could ever take is refused before anybody creates with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..errors import InvalidRequest
from ..model.policy import External, PolicyRules
from ..model.pool import Template
from ..model.profile import Profile
from ..model.resources import Size
from ..policy.placement import Decision, Rules, Wish, place
from . import starting
from .core import Caller, Core
from .requests import CreateSandbox

_FIELDS: Final[Mapping[str, str]] = {
    "not_in_allowed_pools": "defaults.placement.allowedPools",
    "wrong_region": "defaults.placement.regions",
    "template_unavailable": "defaults.template",
    "missing_capabilities": "defaults.capabilities",
    "never_answered": "defaults.capabilities",
    "egress_not_enforced": "defaults.egress",
    "too_large": "defaults.resources",
}
"""What of a profile a pool's refusal is about."""


def replace(core: Core, caller: Caller, wanted: Profile, defaults: CreateSandbox, version: int | None) -> tuple[
    Profile, bool
]:  # fmt: skip
    """As `starting.replace`. Raises `InvalidRequest` naming the field for defaults that nothing could ever satisfy."""
    template = core.catalog.template(defaults.template)
    if template is None:
        raise InvalidRequest(f"There is no template {defaults.template!r}.", field="defaults.template")
    _check(core, defaults, template)
    return starting.replace(core, caller, wanted, version)


def _check(core: Core, defaults: CreateSandbox, template: Template) -> None:
    """By every pool that there is, under a policy that permits all: tenants' policies can only take away."""
    candidates = core.catalog.pools().candidates(core.clock.now())
    names = tuple(candidate.pool.name for candidate in candidates)
    generous = PolicyRules(external=External.ALLOWED, external_pools=names, shorter_lifetime=True)
    decision = place(_wish(defaults, template), candidates, Rules([generous]), template)
    if candidates and decision.chosen is None and not decision.may_wait:
        raise InvalidRequest(
            f"No pool could ever take a sandbox with these defaults ({decision.summary()}). Change them, or register a "
            "pool that can first.",
            field=_field(decision),
        )  # fmt: skip


def _wish(defaults: CreateSandbox, template: Template) -> Wish:
    asked = defaults.resources
    size = Size(
        sandboxes=1,
        cpu_millis=template.cpu_millis if asked.cpu is None else max(1, round(asked.cpu * 1000)),
        memory_mib=template.memory_mib if asked.memory_mib is None else asked.memory_mib,
        disk_gib=template.disk_gib if asked.disk_gib is None else asked.disk_gib,
    )
    return Wish(
        "profile", size, defaults.template, capabilities=tuple(sorted(set(defaults.capabilities))),
        allowed_pools=tuple(defaults.placement.allowed_pools), image=defaults.image,
        regions=tuple(defaults.placement.regions),
        egress=defaults.egress.limit() if defaults.egress is not None else None,
    )  # fmt: skip


def _field(decision: Decision) -> str:
    """The one that every pool refuses for, or of those that were asked for by name; else the whole."""
    reasons = {why.reason for why in decision.rejected.values()}
    pinned = reasons - {"not_in_allowed_pools"} or reasons
    fields = {_FIELDS.get(reason, "defaults") for reason in pinned}
    return fields.pop() if len(fields) == 1 else "defaults"
