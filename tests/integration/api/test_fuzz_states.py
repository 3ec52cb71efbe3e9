"""Chains of requests: what one answer names, the next ones use, also when it is gone by then."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.fuzzing import Fuzzed
from tests.support.scale import scaled

CHAINS = scaled(6, 150)
LENGTH = scaled(12, 50)
PLANE = Fuzzed()
Chains: Any = PLANE.schema.as_state_machine()
"""Its rules are the links between operations, found from what one answers and another one asks for."""


class Chain(Chains):  # type: ignore[misc]
    def setup(self) -> None:
        PLANE.renew()

    def before_call(self, case: Any) -> None:
        PLANE.bring_near(case)

    def get_call_kwargs(self, case: Any) -> dict[str, Any]:
        return {"headers": PLANE.headers(case)}

    def validate_response(self, response: Any, case: Any, **_: Any) -> None:
        PLANE.judge(case, response, chained=True)


def test_no_chain_of_requests_is_answered_with_a_fault_or_otherwise_than_described() -> None:
    begun = PLANE.requests
    run_state_machine_as_test(
        Chain,
        settings=settings(
            max_examples=CHAINS, stateful_step_count=LENGTH, deadline=None, derandomize=True, database=None,
            phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
    assert PLANE.requests - begun > 3 * CHAINS, "chains that end with their first request chain nothing"
