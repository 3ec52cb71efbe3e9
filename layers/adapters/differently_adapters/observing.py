"""Many sandboxes looked at one by one, for backends that have no call for many."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from differently_core.contract import Instance, Observation, Observations, Target
from differently_core.errors import DifferentlyError, ProviderUnavailable


def each_observed(get: Callable[[Target], Instance], targets: Sequence[Target]) -> Observations:
    """What `get` tells of each, or why it tells nothing. Raises `ProviderUnavailable` when it answers for none."""
    seen = [_observation(get, target) for target in targets]
    silent = [told for told in seen if isinstance(told, ProviderUnavailable)]
    if seen and len(silent) == len(seen):
        raise silent[0]
    return seen


def _observation(get: Callable[[Target], Instance], target: Target) -> Observation:
    try:
        return get(target)
    except DifferentlyError as error:
        return error
