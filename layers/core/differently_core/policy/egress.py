"""What a new instance may reach: what its caller asks, within what every policy that applies permits.

Decided when a sandbox is admitted, and kept on it, so that an instance that is made again or restored later gets the
same; a pool that cannot enforce it is no candidate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

from ..contract import EgressAction, EgressRules
from ..model.egress import EgressLimit
from ..model.policy import PolicyRules


def of_new(asked: EgressLimit | None, scopes: Sequence[PolicyRules], pool: str) -> EgressLimit | None:
    """None where nothing is restricted. Without a wish the ceilings of the policies alone apply."""
    limit = reduce(lambda narrowed, ceiling: narrowed.within(ceiling), _ceilings(scopes, pool), asked or EgressLimit())
    return limit if limit.restricts else None


def rules_of(limit: EgressLimit) -> EgressRules:
    """As adapters take it."""
    if limit.allow is None:
        return EgressRules(EgressAction.ALLOW, deny=limit.deny)
    return EgressRules(EgressAction.DENY, allow=limit.allow, deny=limit.deny)


def _ceilings(scopes: Sequence[PolicyRules], pool: str) -> Iterator[EgressLimit]:
    for scope in scopes:
        for ceiling in (scope.egress, scope.pool_egress.get(pool)):
            if ceiling is not None:
                yield ceiling
