"""Where a sandbox may run: each filter with its reason and how lasting it is, then the order of what is left."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from dataclasses import replace

import pytest

from differently_core.model.policy import External, PolicyRules, Strategy
from differently_core.model.pool import CostModel, PoolState, Template, Trust
from differently_core.model.resources import Size
from differently_core.policy.placement import (
    FILTERS,
    HINTS,
    POLICY_REASONS,
    Candidate,
    Decision,
    Permanence,
    Rejection,
    Rules,
    Wish,
    place,
)
from tests.support.builders import a_pool, a_size, a_template, a_view, room_for

NEVER, NOT_NOW = Permanence.NEVER, Permanence.NOT_NOW
NO_POLICY = PolicyRules()
OUTSIDE = a_pool(trust=Trust.EXTERNAL)


def a_wish(size: Size | None = None, **fields: object) -> Wish:
    return Wish("sbx_1", size or a_size(), "default", **fields)  # type: ignore[arg-type]  # a keyword a test


def decided(
    candidate: Candidate,
    wish: Wish | None = None,
    rules: Sequence[PolicyRules] = (NO_POLICY,),
    template: Template | None = None,
) -> Rejection | None:
    """What one pool is refused for; None when it is chosen."""
    return place(wish or a_wish(), [candidate], Rules(rules), template or a_template()).rejected.get("pool")


def test_a_healthy_private_pool_takes_it():
    assert decided(Candidate(a_pool(), a_view())) is None


@pytest.mark.parametrize(
    ("candidate", "wish", "reason", "permanence", "detail"),
    [
        (
            Candidate(a_pool(), a_view()), a_wish(allowed_pools=("other",)), "not_in_allowed_pools", NEVER, "",
        ),
        (
            Candidate(a_pool(region="us-1"), a_view()), a_wish(regions=("eu-1", "eu-2")), "wrong_region", NEVER,
            "the pool is in us-1",
        ),
        (
            Candidate(a_pool(), a_view()), a_wish(regions=("eu-1",)), "wrong_region", NEVER, "the pool has no region",
        ),
        (
            Candidate(a_pool(), a_view(templates=("python",))), a_wish(), "template_unavailable", NEVER, "default",
        ),
        (
            Candidate(a_pool(), a_view(features=("exec",))), a_wish(capabilities=("gpu", "exec", "fork")),
            "missing_capabilities", NEVER, "fork, gpu",
        ),
        (
            Candidate(a_pool(), a_view(max_cpu_millis=999)), a_wish(), "too_large", NEVER, "cpu_millis 1000 > 999",
        ),
        (
            Candidate(a_pool(), a_view(max_memory_mib=511)), a_wish(), "too_large", NEVER, "memory_mib 512 > 511",
        ),
        (
            Candidate(a_pool(), a_view(max_disk_gib=1)), a_wish(a_size(disk_gib=2)), "too_large", NEVER,
            "disk_gib 2 > 1",
        ),
        (Candidate(a_pool(state=PoolState.DRAINING), a_view()), a_wish(), "draining", NOT_NOW, ""),
        (Candidate(a_pool(), None), a_wish(), "not_probed_yet", NOT_NOW, ""),
        (Candidate(a_pool(), a_view(healthy=False, message="no answer")), a_wish(), "unhealthy", NOT_NOW, "no answer"),
        (
            Candidate(a_pool(), a_view(bounded=True, free_cpu_millis=999, free_memory_mib=512)), a_wish(),
            "no_node_with_room", NOT_NOW, "",
        ),
        (
            # 8 GiB in all, but no node with more than 256 MiB
            Candidate(
                a_pool(), a_view(bounded=True, free_cpu_millis=8000, free_memory_mib=8192, largest_free_memory_mib=256)
            ),
            a_wish(), "no_node_with_room", NOT_NOW, "",
        ),
        (Candidate(a_pool(), a_view(), room_for(1), resting=True), a_wish(), "backend_full", NOT_NOW, ""),
        (Candidate(a_pool(), a_view(), room_for(0)), a_wish(), "full", NOT_NOW, ""),
        (Candidate(a_pool(), a_view(), Size()), a_wish(), "full", NOT_NOW, ""),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)  # fmt: skip
def test_a_filter_gives_its_reason(candidate: Candidate, wish: Wish, reason: str, permanence: Permanence, detail: str):
    assert decided(candidate, wish) == Rejection(reason, permanence, detail)


@pytest.mark.parametrize(
    ("candidate", "why"),
    [
        (Candidate(a_pool(), a_view(max_cpu_millis=1000, max_memory_mib=512)), "just as large as it may be"),
        (Candidate(a_pool(), a_view(max_cpu_millis=0)), "0 means no limit"),
        (Candidate(a_pool(), a_view(), room_for(1)), "the last free slot"),
        (Candidate(a_pool(), a_view(templates=("default",))), "its template is offered"),
        (
            Candidate(a_pool(), a_view(bounded=True, free_cpu_millis=1000, free_memory_mib=512)),
            "a backend that knows no nodes has its free room as one",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_an_edge_is_inside(candidate: Candidate, why: str):
    assert decided(candidate) is None, why


def test_what_a_pool_can_do_is_unknown_until_a_probe_succeeds():
    """A pool that has never answered may have the capability: waiting can help."""
    unseen = Candidate(a_pool(), a_view(features=(), healthy=False))

    assert decided(unseen, a_wish(capabilities=("gpu",))) == Rejection("unhealthy", NOT_NOW)


@pytest.mark.parametrize(
    ("pool", "rules", "reason"),
    [
        (a_pool(), [NO_POLICY], None),
        (a_pool(), [PolicyRules(denied_pools=("pool",))], "denied_by_policy"),
        (a_pool(), [PolicyRules(allowed_pools=())], "denied_by_policy"),
        (a_pool(), [PolicyRules(allowed_pools=("pool",))], None),
        # A narrower scope takes away, and cannot give back.
        (a_pool(), [NO_POLICY, PolicyRules(denied_pools=("pool",))], "denied_by_policy"),
        (a_pool(), [PolicyRules(denied_pools=("pool",)), PolicyRules(allowed_pools=("pool",))], "denied_by_policy"),
        # An external pool needs to be allowed and named, by every scope.
        (OUTSIDE, [NO_POLICY], "external_not_allowed"),
        (OUTSIDE, [], "external_not_allowed"),
        (OUTSIDE, [PolicyRules(external=External.ALLOWED)], "external_not_allowed"),
        (OUTSIDE, [PolicyRules(external_pools=("pool",))], "external_not_allowed"),
        (OUTSIDE, [PolicyRules(external=External.ALLOWED, external_pools=("pool",))], None),
        (
            OUTSIDE,
            [PolicyRules(external=External.ALLOWED, external_pools=("pool",)), NO_POLICY],
            "external_not_allowed",
        ),
    ],
)  # fmt: skip
def test_policy_decides(pool, rules: list[PolicyRules], reason: str | None):
    rejection = decided(Candidate(pool, a_view()), rules=rules)

    assert (rejection.reason if rejection else None) == reason
    assert rejection is None or (rejection.permanence is NEVER and reason in POLICY_REASONS)


def test_a_template_with_images_runs_only_where_it_has_one():
    template = a_template(images={"other": "image"})

    assert decided(Candidate(a_pool(), a_view()), template=template) == Rejection(
        "template_unavailable", NEVER, "default"
    )


def test_policy_is_asked_first_so_that_a_refused_pool_tells_nothing_of_itself():
    broken = Candidate(a_pool(trust=Trust.EXTERNAL, state=PoolState.DRAINING), a_view(healthy=False, max_cpu_millis=1))

    assert [rule.__name__ for rule in FILTERS[:2]] == ["denied_by_policy", "external_not_allowed"]
    assert decided(broken) == Rejection("external_not_allowed", NEVER)
    assert decided(broken, a_wish(allowed_pools=("other",), regions=("eu",))) == Rejection(
        "external_not_allowed", NEVER
    )


def test_what_can_never_work_is_told_before_what_does_not_work_now():
    assert decided(Candidate(a_pool(state=PoolState.DRAINING), a_view(max_cpu_millis=1))) == Rejection(
        "too_large", NEVER, "cpu_millis 1000 > 1"
    )


def test_every_filter_is_named_for_the_reason_it_gives():
    named = {rule.__name__ for rule in FILTERS}

    assert named == {
        "not_in_allowed_pools", "denied_by_policy", "external_not_allowed", "wrong_region", "template_unavailable",
        "missing_capabilities", "never_answered", "egress_not_enforced", "too_large", "lifetime_too_short", "draining",
        "unhealthy",
        "no_node_with_room", "backend_full", "full",
    }  # fmt: skip


def test_every_reason_says_what_could_change_it():
    named = {rule.__name__ for rule in FILTERS}

    assert set(HINTS) == named | {"not_probed_yet", "unsettled_attempt"}
    assert all(hint.endswith(".") for hint in HINTS.values())


def test_a_pool_with_an_unsettled_attempt_of_the_sandbox_waits():
    decision = place(a_wish(), [Candidate(a_pool(), a_view())], Rules([NO_POLICY]), None, blocked={"pool"})

    assert decision.rejected == {"pool": Rejection("unsettled_attempt", NOT_NOW)}
    assert decision.may_wait


# Ranking.


def ranked(*pools, wish: Wish | None = None) -> tuple[str, ...]:
    names = tuple(pool.name for pool in pools if pool.trust is Trust.EXTERNAL)
    rules = Rules([PolicyRules(external=External.ALLOWED, external_pools=names)])
    return place(wish or a_wish(), [Candidate(pool, a_view(pool.name)) for pool in pools], rules, None).ranked


def test_private_comes_before_external_whatever_it_costs():
    dear = a_pool("dear", cost_model=CostModel(cpu_hour=9.0))
    cheap = a_pool("cheap", trust=Trust.EXTERNAL)

    assert ranked(cheap, dear) == ("dear", "cheap")


def test_the_cheaper_comes_first_for_the_size_that_is_asked():
    """Cheap processors or cheap memory: which is cheaper depends on the sandbox."""
    processors = a_pool("processors", cost_model=CostModel(cpu_hour=0.01, memory_gib_hour=0.10))
    memory = a_pool("memory", cost_model=CostModel(cpu_hour=0.10, memory_gib_hour=0.01))

    assert ranked(memory, processors, wish=a_wish(a_size(cpu_millis=4000, memory_mib=512))) == ("processors", "memory")
    assert ranked(processors, memory, wish=a_wish(a_size(cpu_millis=500, memory_mib=8192))) == ("memory", "processors")


def test_what_the_caller_prefers_comes_before_what_is_cheaper():
    """A failover list: the first that can take it, then any other (users/reports.md 3, rank 11)."""
    pools = [a_pool(name, cost_model=CostModel(cpu_hour=hour)) for name, hour in (("a", 3.0), ("b", 2.0), ("c", 1.0))]

    assert ranked(*pools, wish=a_wish(preferred_pools=("a", "gone", "b"))) == ("a", "b", "c")


def test_a_preference_does_not_lead_outside_while_a_private_pool_can_take_it():
    inside, outside = a_pool("inside"), a_pool("outside", trust=Trust.EXTERNAL)

    assert ranked(outside, inside, wish=a_wish(preferred_pools=("outside",))) == ("inside", "outside")


def test_regions_are_taken_in_the_order_they_are_named():
    pools = [a_pool(region, region=region) for region in ("eu-1", "eu-2", "us-1")]

    assert ranked(*pools, wish=a_wish(regions=("eu-2", "eu-1"))) == ("eu-2", "eu-1")


def test_a_tie_is_broken_by_the_sandbox_and_repeats():
    pools = [a_pool(f"pool{number}") for number in range(4)]
    orders = {Wish(f"sbx_{number}", a_size(), "default"): None for number in range(40)}

    firsts = {ranked(*pools, wish=wish)[0] for wish in orders}
    again = {ranked(*reversed(pools), wish=wish)[0] for wish in orders}

    assert firsts == {pool.name for pool in pools}, "sandboxes spread over equal pools"
    assert again == firsts
    for wish in orders:
        assert ranked(*pools, wish=wish) == ranked(*reversed(pools), wish=wish)


# The decision.


def test_no_pool_at_all_is_no_reason_to_wait():
    decision = place(a_wish(), [], Rules([NO_POLICY]), None)

    assert (decision.chosen, decision.may_wait, decision.only_capabilities) == (None, False, False)
    assert decision.summary() == "0/0 pools"


def test_a_decision_counts_its_reasons_in_order():
    decision = Decision(
        ("a",),
        {
            "b": Rejection("draining", NOT_NOW),
            "c": Rejection("full", NOT_NOW),
            "d": Rejection("draining", NOT_NOW),
        },
    )

    assert decision.summary() == "1/4 pools: 2 draining, 1 full"


@pytest.mark.parametrize(
    ("reasons", "only"),
    [
        (["missing_capabilities"], True),
        (["missing_capabilities", "external_not_allowed"], True),
        (["missing_capabilities", "too_large"], False),
        (["external_not_allowed"], False),
    ],
)
def test_only_capabilities_are_missing_when_every_permitted_pool_lacks_some(reasons: list[str], only: bool):
    rejected = {str(number): Rejection(reason, NEVER) for number, reason in enumerate(reasons)}

    assert Decision((), rejected).only_capabilities is only


# What policies prefer


def placed(strategy: Strategy | None, sandbox: str, *more: PolicyRules) -> tuple[str, ...]:
    pools = [
        a_pool("a", max_concurrency=10, cost_model=CostModel(cpu_hour=3.0)),
        a_pool("b", max_concurrency=30, cost_model=CostModel(cpu_hour=1.0)),
        a_pool("c", max_concurrency=60, cost_model=CostModel(cpu_hour=2.0)),
    ]
    candidates = [Candidate(pool, a_view(name=pool.name)) for pool in pools]
    wish = replace(a_wish(), sandbox=sandbox)
    return place(wish, candidates, Rules([PolicyRules(strategy=strategy), *more]), a_template()).ranked


def test_the_cheapest_comes_first_unless_a_policy_says_otherwise():
    assert placed(None, "sbx_1") == placed(Strategy.CHEAPEST, "sbx_1") == ("b", "c", "a")
    assert placed(Strategy.PACK, "sbx_1") == ("a", "b", "c")


def test_spread_gives_each_pool_its_share_and_a_sandbox_the_same_order_each_time():
    first = Tally(placed(Strategy.SPREAD, f"sbx_{number}")[0] for number in range(2000))
    assert {name: round(count / 200) for name, count in first.items()} == {"a": 1, "b": 3, "c": 6}
    assert placed(Strategy.SPREAD, "sbx_7") == placed(Strategy.SPREAD, "sbx_7")


def test_the_narrowest_policy_that_names_a_strategy_counts():
    assert placed(Strategy.PACK, "sbx_1", PolicyRules(), PolicyRules(strategy=Strategy.CHEAPEST)) == ("b", "c", "a")
    assert placed(Strategy.PACK, "sbx_1", PolicyRules(), PolicyRules()) == ("a", "b", "c")


@pytest.mark.parametrize("strategy", Strategy)
def test_private_pools_come_first_whatever_the_strategy(strategy: Strategy):
    rules = PolicyRules(external=External.ALLOWED, external_pools=("a",), strategy=strategy)
    cheap = a_pool("a", trust=Trust.EXTERNAL, max_concurrency=1_000_000)
    dear = a_pool("b", max_concurrency=1, cost_model=CostModel(cpu_hour=9.0))
    candidates = [Candidate(pool, a_view(name=pool.name)) for pool in (cheap, dear)]
    assert place(a_wish(), candidates, Rules([rules]), a_template()).ranked == ("b", "a")


# A pool that never answered


def silent(name: str = "silent") -> Candidate:
    return Candidate(a_pool(name), None, silent=True)


def test_nobody_waits_for_what_a_pool_that_never_answered_might_offer():
    """One such pool turned a 422 into a wait of an hour."""
    lacks = Candidate(a_pool("main"), a_view(name="main", features=("exec",)))
    wish = a_wish(capabilities=("gpu",))
    decision = place(wish, [lacks, silent()], Rules([NO_POLICY]), a_template())
    assert (decision.may_wait, decision.only_capabilities) == (False, True)
    assert decision.rejected["silent"] == Rejection("never_answered", NEVER, "gpu")
    fresh = place(wish, [lacks, Candidate(a_pool("fresh"), None)], Rules([NO_POLICY]), a_template())
    assert fresh.may_wait, "one that was just registered has not been looked at yet"
    plain = place(a_wish(), [silent()], Rules([NO_POLICY]), a_template())
    assert plain.may_wait, "what every pool can do is worth waiting for"
