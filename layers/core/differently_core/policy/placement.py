"""Where a sandbox may run and where it should: filters refuse, scorers rank, the decision keeps every reason.

A filter answers for one pool, from what the last probe saw. `permanence` parts "not now" (waiting can help) from
"never" (only a change of policy, pool or request can). Pure: the same inputs give the same decision, ties included.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..model import features
from ..model.egress import EgressLimit
from ..model.policy import CommandLog, External, PolicyRules, Strategy
from ..model.pool import Pool, PoolState, PoolView, Template, Trust
from ..model.resources import Size
from . import egress
from .starting import start_of


class Permanence(StrEnum):
    NOT_NOW = "not_now"
    NEVER = "never"


@dataclass(frozen=True)
class Rejection:
    """`reason` is a fixed code, `detail` names what was missing or how much."""

    reason: str
    permanence: Permanence
    detail: str = ""


@dataclass(frozen=True)
class Wish:
    """What placement needs to know of a sandbox; a `ttl_seconds` of 0 fits everywhere."""

    sandbox: str
    size: Size
    template: str
    capabilities: Sequence[str] = ()
    allowed_pools: Sequence[str] = ()
    image: str | None = None
    regions: Sequence[str] = ()
    """Only these, the first named first; any when empty."""
    egress: EgressLimit | None = None
    preferred_pools: Sequence[str] = ()
    """The first named first, then every other."""
    ttl_seconds: int = 0


@dataclass(frozen=True)
class Candidate:
    """One pool as it is known; `free` is its counter where dispatch has read it."""

    pool: Pool
    view: PoolView | None
    free: Size | None = None
    resting: bool = False
    """Its backend said a moment ago that it is full."""
    silent: bool = False
    """It has not answered once since it was registered, which is a while ago: nobody knows what it can do."""


@dataclass(frozen=True)
class Rules:
    """The policies that apply, widest first. A scope can only take away what a wider one gave."""

    scopes: Sequence[PolicyRules]

    @property
    def secrets_in_env(self) -> bool:
        return all(scope.secrets_in_env for scope in self.scopes)

    @property
    def strategy(self) -> Strategy:
        said = (scope.strategy for scope in reversed(self.scopes) if scope.strategy is not None)
        return next(said, Strategy.CHEAPEST)

    @property
    def retention_seconds(self) -> int | None:
        """The shortest that any scope says; None where none says anything."""
        return min((said for scope in self.scopes if (said := scope.retention_seconds) is not None), default=None)

    @property
    def snapshot_retention_seconds(self) -> int | None:
        said = (scope.snapshot_retention_seconds for scope in self.scopes)
        return min((seconds for seconds in said if seconds is not None), default=None)

    @property
    def command_log(self) -> CommandLog:
        """The most that any scope says; a hash where none says anything."""
        said = [scope.command_log for scope in self.scopes if scope.command_log is not None]
        return max(said, key=list(CommandLog).index, default=CommandLog.HASH)

    @property
    def shorter_lifetime(self) -> bool:
        """Whether a pool may end a sandbox before its time: the widest scope permits it and none forbids it."""
        said = [scope.shorter_lifetime for scope in self.scopes]
        return bool(said) and said[0] is True and False not in said


@dataclass(frozen=True)
class Decision:
    """`ranked` names the pools that can take it now, best first."""

    ranked: tuple[str, ...]
    rejected: Mapping[str, Rejection]

    @property
    def chosen(self) -> str | None:
        return self.ranked[0] if self.ranked else None

    @property
    def may_wait(self) -> bool:
        """True when some pool refused only for now."""
        return any(rejection.permanence is Permanence.NOT_NOW for rejection in self.rejected.values())

    @property
    def only_capabilities(self) -> bool:
        """True when pools that policy permits exist and every one that ever answered lacks a requested capability."""
        permitted = [rejection for rejection in self.rejected.values() if rejection.reason not in POLICY_REASONS]
        reasons = {rejection.reason for rejection in permitted}
        return "missing_capabilities" in reasons and reasons <= {"missing_capabilities", "never_answered"}

    def summary(self) -> str:
        """One line: `0/3 pools: 2 draining, 1 full`."""
        counts: dict[str, int] = {}
        for rejection in self.rejected.values():
            counts[rejection.reason] = counts.get(rejection.reason, 0) + 1
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
        return f"{len(self.ranked)}/{len(self.ranked) + len(self.rejected)} pools" + (f": {reasons}" if reasons else "")


HIDDEN_REASONS = frozenset({"denied_by_policy", "external_not_allowed"})
"""Of pools that a tenant is not told of: what policy keeps from it does not exist for it."""
CAPACITY_REASONS = frozenset({"no_node_with_room", "backend_full", "full"})
"""More room in the pool would help."""
POLICY_REASONS = HIDDEN_REASONS | {"not_in_allowed_pools", "wrong_region"}
"""What was not asked for, or not permitted: not a matter of what the pool can do."""
HINTS: Mapping[str, str] = {
    "denied_by_policy": "An operator can allow the pool in the policies of the organization and the project.",
    "external_not_allowed": "An operator can allow external placement and name the pool, in every policy that applies.",
    "not_in_allowed_pools": "Name the pool in placement.allowedPools, or leave the list out.",
    "wrong_region": "Name the pool's region in placement.regions, or leave the list out.",
    "template_unavailable": "Choose another template, or give this one an image for the pool.",
    "missing_capabilities": "Ask for fewer capabilities, or for a pool that has them.",
    "never_answered": "The pool has not answered since it was registered, so nobody knows if it offers this: an "
    "operator must look at its health.",
    "egress_not_enforced": "The pool cannot limit what a sandbox reaches: use another one, or ask for no limit where "
    "policies allow that.",
    "too_large": "Ask for a smaller sandbox.",
    "lifetime_too_short": "Ask for a shorter ttlSeconds; or an operator permits it by shorterLifetime in the policies.",
    "draining": "The pool takes work again when an operator ends its draining.",
    "not_probed_yet": "The pool is looked at within a minute; then more is known.",
    "unhealthy": "The pool takes work again when its backend answers.",
    "no_node_with_room": "Room comes when something ends there, or a smaller sandbox may fit.",
    "backend_full": "The backend said that it is full; it is asked again in a moment.",
    "full": "Room comes when something in the pool ends.",
    "unsettled_attempt": "An earlier attempt there must be cleaned up first.",
}
"""What could change a rejection, by its reason."""

Filter = Callable[[Wish, Candidate, Rules, Template | None], Rejection | None]


def _never(reason: str, detail: str = "") -> Rejection:
    return Rejection(reason, Permanence.NEVER, detail)


def _not_now(reason: str, detail: str = "") -> Rejection:
    return Rejection(reason, Permanence.NOT_NOW, detail)


def not_in_allowed_pools(wish: Wish, candidate: Candidate, rules: Rules, template: Template | None) -> Rejection | None:
    if wish.allowed_pools and candidate.pool.name not in wish.allowed_pools:
        return _never("not_in_allowed_pools")
    return None


def wrong_region(wish: Wish, candidate: Candidate, rules: Rules, template: Template | None) -> Rejection | None:
    region = candidate.pool.region
    if wish.regions and region not in wish.regions:
        return _never("wrong_region", f"the pool is in {region}" if region else "the pool has no region")
    return None


def denied_by_policy(wish: Wish, candidate: Candidate, rules: Rules, template: Template | None) -> Rejection | None:
    name = candidate.pool.name
    for scope in rules.scopes:
        if name in scope.denied_pools or (scope.allowed_pools is not None and name not in scope.allowed_pools):
            return _never("denied_by_policy")
    return None


def external_not_allowed(wish: Wish, candidate: Candidate, rules: Rules, template: Template | None) -> Rejection | None:
    """An external pool needs every scope to allow external placement and to name it; no policy at all refuses it."""
    if candidate.pool.trust is Trust.PRIVATE:
        return None
    named = [
        scope.external is External.ALLOWED and candidate.pool.name in scope.external_pools for scope in rules.scopes
    ]
    return None if named and all(named) else _never("external_not_allowed")


def permitted(candidate: Candidate, rules: Rules) -> bool:
    """Whether policy lets this tenant know of a pool at all."""
    anything = Wish("", Size(), "")
    return all(rule(anything, candidate, rules, None) is None for rule in (denied_by_policy, external_not_allowed))


def template_unavailable(wish: Wish, candidate: Candidate, rules: Rules, template: Template | None) -> Rejection | None:
    offered = candidate.view.templates if candidate.view is not None else ()
    start = start_of(wish.template, wish.image, template, candidate.pool.name, offered)
    return _never("template_unavailable", wish.image or wish.template) if start is None else None


def missing_capabilities(wish: Wish, candidate: Candidate, rules: Rules, template: Template | None) -> Rejection | None:
    if candidate.view is None or not candidate.view.features:
        return None  # no probe has succeeded yet: what it can do is not known
    missing = sorted(set(wish.capabilities) - set(candidate.view.features))
    return _never("missing_capabilities", ", ".join(missing)) if missing else None


def never_answered(wish: Wish, candidate: Candidate, rules: Rules, template: Template | None) -> Rejection | None:
    """What a pool can do is not known before its first probe; of one that never answers nothing is waited for."""
    asked = ", ".join(sorted(wish.capabilities))
    return _never("never_answered", asked) if candidate.silent and asked else None


def egress_not_enforced(wish: Wish, candidate: Candidate, rules: Rules, template: Template | None) -> Rejection | None:
    """Asked by the caller or demanded by a policy: what a pool cannot enforce is not promised there."""
    view = candidate.view
    if view is None or not view.features or features.EGRESS_CONTROL in view.features:
        return None
    limit = egress.of_new(wish.egress, rules.scopes, candidate.pool.name)
    return _never("egress_not_enforced") if limit is not None else None


def too_large(wish: Wish, candidate: Candidate, rules: Rules, template: Template | None) -> Rejection | None:
    view = candidate.view
    if view is None:
        return None
    for name in ("cpu_millis", "memory_mib", "disk_gib"):
        limit, need = getattr(view, f"max_{name}"), getattr(wish.size, name)
        if limit and need > limit:
            return _never("too_large", f"{name} {need} > {limit}")
    return None


def lifetime_too_short(wish: Wish, candidate: Candidate, rules: Rules, template: Template | None) -> Rejection | None:
    """A pool that ends what runs in it before its time; policy may permit that, and it then shows its shorter life."""
    most = candidate.view.lifetime_seconds() if candidate.view is not None else 0
    if not most or wish.ttl_seconds <= most or rules.shorter_lifetime:
        return None
    return _never("lifetime_too_short", f"ttlSeconds {wish.ttl_seconds} > {most}")


def draining(wish: Wish, candidate: Candidate, rules: Rules, template: Template | None) -> Rejection | None:
    return _not_now("draining") if candidate.pool.state is PoolState.DRAINING else None


def unhealthy(wish: Wish, candidate: Candidate, rules: Rules, template: Template | None) -> Rejection | None:
    if candidate.view is None:
        return _not_now("not_probed_yet")
    return None if candidate.view.healthy else _not_now("unhealthy", candidate.view.message)


def no_node_with_room(wish: Wish, candidate: Candidate, rules: Rules, template: Template | None) -> Rejection | None:
    """Enough in total on many nodes is no room when no single node has it."""
    view = candidate.view
    if view is None or not view.bounded:
        return None
    cpu = view.largest_free_cpu_millis or view.free_cpu_millis
    memory = view.largest_free_memory_mib or view.free_memory_mib
    fits = wish.size.cpu_millis <= cpu and wish.size.memory_mib <= memory
    return None if fits else _not_now("no_node_with_room")


def backend_full(wish: Wish, candidate: Candidate, rules: Rules, template: Template | None) -> Rejection | None:
    return _not_now("backend_full") if candidate.resting else None


def full(wish: Wish, candidate: Candidate, rules: Rules, template: Template | None) -> Rejection | None:
    if candidate.free is None or wish.size.fits_in(candidate.free):
        return None
    return _not_now("full")


FILTERS: Sequence[Filter] = (
    denied_by_policy,
    external_not_allowed,
    not_in_allowed_pools,
    wrong_region,
    template_unavailable,
    missing_capabilities,
    never_answered,
    egress_not_enforced,
    too_large,
    lifetime_too_short,
    draining,
    unhealthy,
    no_node_with_room,
    backend_full,
    full,
)
"""Order matters: policy first, so that a tenant never learns more of a pool than that it is not for them; then what
can never work; then what does not work now."""


def place(
    wish: Wish, candidates: Sequence[Candidate], rules: Rules, template: Template | None,
    blocked: Collection[str] = frozenset(),
) -> Decision:  # fmt: skip
    """Filter and rank.

    `blocked` names pools that still hold an unsettled attempt of this sandbox: a cleanup there must never meet a new
    instance.
    """
    rejected: dict[str, Rejection] = {}
    eligible: list[Candidate] = []
    for candidate in candidates:
        rejection = next((found for rule in FILTERS if (found := rule(wish, candidate, rules, template))), None)
        if rejection is None and candidate.pool.name in blocked:
            rejection = _not_now("unsettled_attempt")
        if rejection is None:
            eligible.append(candidate)
        else:
            rejected[candidate.pool.name] = rejection
    eligible.sort(key=lambda candidate: _rank(wish, candidate, rules.strategy))
    return Decision(tuple(candidate.pool.name for candidate in eligible), rejected)


def hourly_cost(wish: Wish, pool: Pool) -> float:
    """What an hour of it costs there by the pool's own prices; 0 where they are unknown."""
    cost, size = pool.cost_model, wish.size
    return (cost.cpu_hour or 0.0) * size.cpu_millis / 1000 + (cost.memory_gib_hour or 0.0) * size.memory_mib / 1024


def _rank(wish: Wish, candidate: Candidate, strategy: Strategy) -> tuple[int, int, int, float, str, int]:
    """Private before external, then as the caller prefers, then by the strategy of the policies.

    A tie is broken by the sandbox id, so that a decision can be replayed.
    """
    pool = candidate.pool
    return (
        0 if pool.trust is Trust.PRIVATE else 1,
        _place_in(wish.preferred_pools, pool.name),
        _place_in(wish.regions, pool.region),
        *_by_strategy(wish, pool, strategy),
        zlib.crc32(f"{wish.sandbox}/{pool.name}".encode()),
    )


def _by_strategy(wish: Wish, pool: Pool, strategy: Strategy) -> tuple[float, str]:
    match strategy:
        case Strategy.CHEAPEST:
            return hourly_cost(wish, pool), ""
        case Strategy.SPREAD:
            # Weighted rendezvous hashing: without knowing of the others, each pool gets its share of the sandboxes.
            name = f"{wish.sandbox}/{pool.name}".encode()
            drawn = int.from_bytes(hashlib.blake2b(name, digest_size=6).digest(), "big")
            return -math.log((drawn + 1) / 2**48) / max(1, pool.max_concurrency), ""
        case Strategy.PACK:
            return 0.0, pool.name


def _place_in(names: Sequence[str], name: str | None) -> int:
    return names.index(name) if name in names else len(names)
