"""What a classification leaves of the rules around it: it takes away, and never gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from differently_core.model.policy import ClassRules, External, PolicyRules
from differently_core.model.pool import Trust
from differently_core.policy.placement import Candidate, Rules, permitted
from tests.support.builders import a_pool, a_view

OPEN = PolicyRules(external=External.ALLOWED, external_pools=("one", "two"), denied_pools=("old",))


def test_without_entries_a_classification_changes_nothing():
    assert OPEN.for_classification("secret") == OPEN


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (ClassRules(), OPEN),
        (ClassRules(external=External.NEVER), OPEN.model_copy(update={"external": External.NEVER})),
        (ClassRules(external_pools=("two", "three")), OPEN.model_copy(update={"external_pools": ("two",)})),
        (ClassRules(external_pools=()), OPEN.model_copy(update={"external_pools": ()})),
        (ClassRules(allowed_pools=("main",)), OPEN.model_copy(update={"allowed_pools": ("main",)})),
        (ClassRules(denied_pools=("new",)), OPEN.model_copy(update={"denied_pools": ("old", "new")})),
    ],
)
def test_an_entry_takes_away_what_it_names(entry: ClassRules, expected: PolicyRules):
    assert OPEN.model_copy(update={"classifications": {"secret": entry}}).for_classification("secret") == expected


def test_what_is_not_listed_is_treated_as_default():
    """A tenant that makes a name up is not better off than one that names none."""
    rules = OPEN.model_copy(
        update={"classifications": {"default": ClassRules(external=External.NEVER), "public": ClassRules()}}
    )

    assert rules.for_classification("made-up").external is External.NEVER
    assert rules.for_classification("default").external is External.NEVER
    assert rules.for_classification("public").external is External.ALLOWED


def test_an_empty_list_of_allowed_pools_stays_none_at_all():
    rules = PolicyRules(allowed_pools=("main",), classifications={"secret": ClassRules(allowed_pools=("other",))})

    assert rules.for_classification("secret").allowed_pools == ()


names = st.lists(st.sampled_from(["a", "b", "c"]), max_size=3).map(tuple)
entries = st.builds(
    ClassRules, external=st.none() | st.sampled_from(External), external_pools=st.none() | names,
    allowed_pools=st.none() | names, denied_pools=names,
)  # fmt: skip
scopes = st.builds(
    PolicyRules, external=st.sampled_from(External), external_pools=names, allowed_pools=st.none() | names,
    denied_pools=names, classifications=st.dictionaries(st.sampled_from(["default", "secret"]), entries),
)  # fmt: skip


@given(rules=scopes, name=st.sampled_from(["default", "secret", "other"]), pool=st.sampled_from("abc"))
@pytest.mark.parametrize("trust", Trust)
def test_no_classification_opens_a_pool_that_its_scope_shuts(trust: Trust, rules: PolicyRules, name: str, pool: str):
    candidate = Candidate(a_pool(pool, trust=trust), a_view(pool))

    if permitted(candidate, Rules([rules.for_classification(name)])):
        assert permitted(candidate, Rules([rules]))
