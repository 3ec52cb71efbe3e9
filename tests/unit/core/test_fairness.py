"""Whose turn it is: against a plain oracle with exact fractions, and the properties that fairness promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from differently_core.model.queue import QueueRow
from differently_core.model.resources import DIMENSIONS, UNLIMITED, Size
from differently_core.quotas.fairness import Plan, Waiting, dominant_share, plan
from tests.support.builders import a_queue_row, a_size, room_for

PLENTY = room_for(1000)
TOTAL = Size(sandboxes=100, cpu_millis=100_000, memory_mib=102_400, disk_gib=UNLIMITED)


def waiting(
    org: str, rows: Sequence[QueueRow], *, weight: int = 1, held: Size | None = None, free: Size = PLENTY
) -> Waiting:
    return Waiting(org, weight, held or Size(), free, rows)


def rows_of(org: str, count: int, size: Size | None = None) -> list[QueueRow]:
    first = sum(org.encode()) * 100
    return [a_queue_row(first + number, org=org, project=f"{org}-p", size=size or a_size()) for number in range(count)]


def anywhere(row: QueueRow, pools: Mapping[str, Size]) -> tuple[str | None, str | None]:
    """The first pool by name that has room."""
    fitting = [name for name in sorted(pools) if row.size.fits_in(pools[name])]
    return (fitting[0], None) if fitting else (None, min(pools, default=None))


def planned(
    backlog: Sequence[Waiting], *, pools: Mapping[str, Size] | None = None, total: Size = TOTAL, limit: int = 25
) -> Plan:
    projects: dict[str, Size] = {row.project: PLENTY for entry in backlog for row in entry.rows}
    return plan(backlog, projects, pools or {"pool": PLENTY}, total, anywhere, limit)


def orgs(found: Plan) -> list[str]:
    return [admission.row.org for admission in found.admissions]


# Shares.


@pytest.mark.parametrize(
    ("held", "weight", "share", "why"),
    [
        (Size(), 1, 0.0, "nothing held"),
        (Size(sandboxes=10), 1, 0.10, "ten of a hundred sandboxes"),
        (Size(sandboxes=1, cpu_millis=50_000), 1, 0.50, "half of the processors dominates"),
        (Size(sandboxes=10), 2, 0.05, "twice the weight, half the share"),
        (Size(disk_gib=10**9), 1, 0.0, "what is unbounded has no share"),
        (Size(sandboxes=10), 0, 0.10, "a weight below one counts as one"),
    ],
)
def test_the_dominant_share_is_the_largest_fraction_by_weight(held: Size, weight: int, share: float, why: str):
    assert dominant_share(held, TOTAL, weight) == pytest.approx(share), why


def test_an_installation_without_bounds_has_no_shares():
    assert dominant_share(Size(sandboxes=5), Size.unlimited(), 1) == 0.0


# Turns.


def test_one_who_holds_less_goes_first():
    found = planned([
        waiting("a", rows_of("a", 1), held=Size(sandboxes=5)),
        waiting("b", rows_of("b", 1), held=Size(sandboxes=4)),
    ])  # fmt: skip

    assert orgs(found) == ["b", "a"]


def test_equals_take_turns():
    assert orgs(planned([waiting("a", rows_of("a", 3)), waiting("b", rows_of("b", 3))])) == ["a", "b"] * 3


def test_twice_the_weight_is_served_twice_as_often():
    found = planned([waiting("a", rows_of("a", 8), weight=2), waiting("b", rows_of("b", 8))], limit=9)

    assert (orgs(found).count("a"), orgs(found).count("b")) == (6, 3)


def test_large_sandboxes_are_dear():
    """10 % of the processors each, against 1 %: ten small ones for a large one."""
    found = planned(
        [
            waiting("large", rows_of("large", 5, a_size(cpu_millis=10_000))),
            waiting("small", rows_of("small", 50, a_size(cpu_millis=1_000))),
        ],
        limit=22,
    )

    assert (orgs(found).count("large"), orgs(found).count("small")) == (2, 20)


def test_an_organization_is_served_oldest_first():
    rows = rows_of("a", 4)

    assert [admission.row for admission in planned([waiting("a", rows)]).admissions] == rows


def test_a_batch_ends_at_its_limit():
    assert len(planned([waiting("a", rows_of("a", 9))], limit=4).admissions) == 4


# What does not fit.


def test_a_full_organization_holds_back_its_own_alone():
    rows = rows_of("a", 2)
    found = planned([waiting("a", rows, free=room_for(0)), waiting("b", rows_of("b", 1))])

    assert orgs(found) == ["b"]
    assert found.blocked == {row.sandbox: ("org", "a") for row in rows}


def test_a_full_project_lets_the_next_project_of_the_organization_go():
    full, free = a_queue_row(1, org="a", project="full"), a_queue_row(2, org="a", project="free")
    found = plan(
        [waiting("a", [full, free])], {"full": room_for(0), "free": PLENTY}, {"pool": PLENTY}, TOTAL, anywhere, 25
    )

    assert [admission.row for admission in found.admissions] == [free]
    assert found.blocked == {full.sandbox: ("project", "full")}


def test_a_full_pool_is_named_as_what_is_waited_for():
    rows = rows_of("a", 3)
    found = planned([waiting("a", rows)], pools={"pool": room_for(2)})

    assert [admission.row for admission in found.admissions] == rows[:2]
    assert found.blocked == {rows[2].sandbox: ("pool", "pool")}


def test_a_row_that_no_pool_can_take_now_waits_for_no_counter():
    rows = rows_of("a", 1)
    found = plan([waiting("a", rows)], {"a-p": PLENTY}, {}, TOTAL, anywhere, 25)

    assert (found.admissions, found.blocked) == ((), {})


def test_a_small_one_goes_where_a_large_one_before_it_does_not_fit():
    large, small = a_queue_row(1, org="a", size=a_size(cpu_millis=9000)), a_queue_row(2, org="a")
    found = planned([waiting("a", [large, small], free=a_size(10, 8000, UNLIMITED, UNLIMITED))])

    assert [admission.row for admission in found.admissions] == [small]
    assert found.blocked == {large.sandbox: ("org", "a")}


# Against an oracle.


@dataclass
class Oracle:
    """The same rules written as plainly as possible: no heap, exact fractions, everything looked at each time."""

    backlog: list[Waiting]
    projects: dict[str, Size]
    pools: dict[str, Size]
    total: Size

    def run(self, limit: int) -> list[tuple[str, str]]:
        free = {entry.org: entry.free for entry in self.backlog}
        held = {entry.org: entry.held for entry in self.backlog}
        rows = {entry.org: list(entry.rows) for entry in self.backlog}
        out: set[str] = set()
        chosen: list[tuple[str, str]] = []
        while len(chosen) < limit:
            turns = [(self.share(entry, held[entry.org]), entry.org) for entry in self.backlog if entry.org not in out]
            if not turns:
                break
            org = min(turns)[1]
            found = self.first(rows[org], free[org])
            if found is None:
                out.add(org)
                continue
            row, pool = found
            rows[org].remove(row)
            free[org] -= row.size
            held[org] += row.size
            self.projects[row.project] -= row.size
            self.pools[pool] -= row.size
            chosen.append((row.sandbox, pool))
            if not rows[org]:
                out.add(org)
        return chosen

    def share(self, entry: Waiting, held: Size) -> Fraction:
        fractions = [
            Fraction(getattr(held, name), getattr(self.total, name))
            for name in DIMENSIONS
            if 0 < getattr(self.total, name) < UNLIMITED
        ]
        return max(fractions, default=Fraction(0)) / entry.weight

    def first(self, rows: list[QueueRow], free: Size) -> tuple[QueueRow, str] | None:
        for row in rows:
            if row.size.fits_in(free) and row.size.fits_in(self.projects[row.project]):
                pool, _ = anywhere(row, self.pools)
                if pool is not None:
                    return row, pool
        return None


SIZES = st.builds(a_size, cpu_millis=st.sampled_from([1000, 2000, 8000]), memory_mib=st.sampled_from([512, 2048]))


@st.composite
def backlogs(draw: st.DrawFn) -> tuple[list[Waiting], dict[str, Size], dict[str, Size]]:
    number = 0
    backlog: list[Waiting] = []
    projects: dict[str, Size] = {}
    for org in "abcd"[: draw(st.integers(1, 4))]:
        rows = []
        for size in draw(st.lists(SIZES, max_size=6)):
            number += 1
            project = f"{org}{draw(st.integers(1, 2))}"
            rows.append(a_queue_row(number, org=org, project=project, size=size))
            projects.setdefault(project, room_for(draw(st.integers(0, 4))))
        free = draw(st.sampled_from([PLENTY, room_for(1), room_for(3), a_size(3, 9000, 4096, 100)]))
        # Powers of two, so that the floating point of the production code is exact and ties are the same.
        held = Size(sandboxes=draw(st.sampled_from([0, 1, 2, 4])), cpu_millis=draw(st.sampled_from([0, 8192])))
        backlog.append(waiting(org, rows, weight=draw(st.sampled_from([1, 2, 4])), held=held, free=free))
    pools = {f"pool{index}": room_for(draw(st.integers(0, 5))) for index in range(draw(st.integers(1, 3)))}
    return backlog, projects, pools


@settings(max_examples=150, deadline=None)
@given(backlogs(), st.integers(1, 12))
def test_the_plan_is_what_the_oracle_says(drawn: tuple[list[Waiting], dict[str, Size], dict[str, Size]], limit: int):
    backlog, projects, pools = drawn
    total = Size(sandboxes=64, cpu_millis=131_072, memory_mib=65_536, disk_gib=UNLIMITED)

    found = plan(backlog, projects, pools, total, anywhere, limit)

    expected = Oracle(backlog, dict(projects), dict(pools), total).run(limit)
    assert [(admission.row.sandbox, admission.pool) for admission in found.admissions] == expected


@settings(max_examples=75, deadline=None)
@given(backlogs())
def test_nothing_is_promised_twice(drawn: tuple[list[Waiting], dict[str, Size], dict[str, Size]]):
    backlog, projects, pools = drawn

    found = plan(backlog, projects, pools, TOTAL, anywhere, 25)

    for entry in backlog:
        mine = [admission.row.size for admission in found.admissions if admission.row.org == entry.org]
        assert sum(mine, Size()).fits_in(entry.free)
    for name, room in pools.items():
        assert sum((one.row.size for one in found.admissions if one.pool == name), Size()).fits_in(room)
    for name, room in projects.items():
        assert sum((one.row.size for one in found.admissions if one.row.project == name), Size()).fits_in(room)


@settings(max_examples=75, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.integers(1, 30)), min_size=2, max_size=4))
def test_backlogged_organizations_are_never_more_than_one_sandbox_apart(drawn: list[tuple[int, int]]):
    """I13: while both still wait, the gap of their weighted shares is at most what one sandbox is worth."""
    backlog = [waiting(org, rows_of(org, 30), weight=weight) for org, (weight, _) in zip("abcd", drawn, strict=False)]
    weights = {entry.org: entry.weight for entry in backlog}
    limit = sum(count for _, count in drawn)

    found = planned(backlog, limit=min(limit, 25))

    shares = {org: Fraction(orgs(found).count(org), weight) for org, weight in weights.items()}
    worth = max(Fraction(1, weight) for weight in weights.values())
    assert max(shares.values()) - min(shares.values()) <= worth
