"""What a sandbox may reach: peers as they are read, limits as they meet, and which pools can hold one to them."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from differently_core.contract import EgressAction, EgressRules
from differently_core.model.egress import EgressLimit, covers, read_peer
from differently_core.model.policy import ClassRules, PolicyRules
from differently_core.policy.egress import of_new, rules_of
from differently_core.policy.placement import Candidate, Permanence, Rejection, Rules, Wish, place
from tests.support.builders import a_pool, a_size, a_view


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Example.COM", "example.com"), ("*.example.com", "*.example.com"), ("a-b.c1.example", "a-b.c1.example"),
        ("10.0.0.0/8", "10.0.0.0/8"), ("192.0.2.7", "192.0.2.7/32"), ("2001:DB8::/32", "2001:db8::/32"),
        ("0.0.0.0/0", "0.0.0.0/0"),
    ],
)  # fmt: skip
def test_a_peer_is_kept_in_one_spelling(text: str, kept: str):
    assert read_peer(text) == kept


@pytest.mark.parametrize(
    "text",
    [
        "*", "*.", "example", "*example.com", "a.*.com", "a..b", "-a.b", "a.b-", "http://a.example", "a.example:443",
        "a b.example", "a_b.example", "10.0.0.1/8", "10.0.0.0/33", "300.1.1.1", "::g", "a.example/8", "é.example",
        "a." * 127 + "example", "*.*.example.com", "a.example\n",
    ],
)  # fmt: skip
def test_what_is_no_peer_is_refused(text: str):
    with pytest.raises(ValueError, match=r"^is no "):
        read_peer(text)


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("example.com", "example.com", True), ("example.com", "a.example.com", False),
        ("*.example.com", "a.example.com", True), ("*.example.com", "a.b.example.com", True),
        ("*.example.com", "example.com", False), ("*.example.com", "badexample.com", False),
        ("*.example.com", "*.a.example.com", True), ("*.a.example.com", "*.example.com", False),
        ("*.example.com", "*.example.com", True), ("a.example.com", "*.example.com", False),
        ("10.0.0.0/8", "10.1.0.0/16", True), ("10.1.0.0/16", "10.0.0.0/8", False), ("10.0.0.0/8", "::/0", False),
        ("0.0.0.0/0", "example.com", False), ("*.example.com", "10.0.0.0/8", False),
    ],
)  # fmt: skip
def test_what_covers_what(wide: str, narrow: str, expected: bool):
    assert covers(wide, narrow) is expected


def limit(allow: list[str] | None = None, deny: list[str] | None = None) -> EgressLimit:
    return EgressLimit(allow=None if allow is None else tuple(allow), deny=tuple(deny or ()))


@pytest.mark.parametrize(
    ("asked", "ceiling", "expected"),
    [
        (limit(), limit(), limit()),
        (limit(), limit(["a.example"]), limit(["a.example"])),
        (limit(["a.example"]), limit(), limit(["a.example"])),
        (limit([]), limit(["a.example"]), limit([])),
        (limit(["a.example"]), limit([]), limit([])),
        (limit(["a.x.example", "b.example"]), limit(["*.x.example"]), limit(["a.x.example"])),
        (limit(["*.example"]), limit(["a.example", "10.0.0.0/8"]), limit(["a.example"])),
        (limit(["10.0.0.0/8"]), limit(["10.1.0.0/16", "192.0.2.0/24"]), limit(["10.1.0.0/16"])),
        (limit(["db.example"]), limit(["10.0.0.0/8"]), limit([])),
        (limit(deny=["b.example"]), limit(deny=["a.example"]), limit(deny=["a.example", "b.example"])),
        (limit(["a.example", "b.example"]), limit(deny=["*.example"]), limit([], ["*.example"])),
        # A hole in what is allowed stays a hole.
        (limit(["10.0.0.0/8"]), limit(deny=["10.1.0.0/16"]), limit(["10.0.0.0/8"], ["10.1.0.0/16"])),
    ],
)
def test_both_must_permit(asked: EgressLimit, ceiling: EgressLimit, expected: EgressLimit):
    assert asked.within(ceiling) == expected


blocks = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 32)).map(
    lambda pair: str(ipaddress.ip_network(pair, strict=False))
)
names = st.lists(st.sampled_from(["a", "b", "x"]), min_size=1, max_size=3).map(lambda parts: ".".join([*parts, "test"]))
peers = blocks | names | names.map(lambda name: f"*.{name}")
limits = st.builds(
    EgressLimit, allow=st.none() | st.lists(peers, max_size=4).map(tuple), deny=st.lists(peers, max_size=3).map(tuple)
)
reached = st.integers(0, 2**32 - 1).map(lambda number: f"{ipaddress.ip_address(number)}/32") | names


def permits(rules: EgressLimit, peer: str) -> bool:
    if any(covers(denied, peer) for denied in rules.deny):
        return False
    return rules.allow is None or any(covers(allowed, peer) for allowed in rules.allow)


@given(one=limits, other=limits, peer=reached)
def test_what_is_permitted_together_is_what_each_permits(one: EgressLimit, other: EgressLimit, peer: str):
    together = one.within(other)

    assert permits(together, peer) == (permits(one, peer) and permits(other, peer))


@given(one=limits, other=limits)
def test_it_does_not_matter_who_is_the_ceiling(one: EgressLimit, other: EgressLimit):
    forth, back = one.within(other), other.within(one)

    assert set(forth.deny) == set(back.deny)
    assert set(forth.allow or ()) == set(back.allow or ())
    assert (forth.allow is None) == (back.allow is None)


# By policy.


def test_every_scope_and_the_pool_narrow_it():
    scopes = [
        PolicyRules(egress=limit(["*.example", "10.0.0.0/8"])),
        PolicyRules(egress=limit(deny=["evil.example"]), pool_egress={"pool": limit(["a.example", "10.0.0.0/8"])}),
        PolicyRules(),
    ]

    assert of_new(None, scopes, "other") == limit(["*.example", "10.0.0.0/8"], ["evil.example"])
    assert of_new(None, scopes, "pool") == limit(["10.0.0.0/8", "a.example"], ["evil.example"])
    assert of_new(limit(["a.example"]), scopes, "pool") == limit(["a.example"], ["evil.example"])
    assert of_new(limit([]), scopes, "pool") == limit([], ["evil.example"])


def test_without_wish_and_ceiling_nothing_is_restricted():
    assert of_new(None, [PolicyRules()], "pool") is None
    assert of_new(EgressLimit(), [PolicyRules(egress=EgressLimit())], "pool") is None
    assert of_new(limit([]), [], "pool") == limit([])


def test_a_classification_narrows_it_further():
    rules = PolicyRules(egress=limit(["*.example"]), classifications={"secret": ClassRules(egress=limit([]))})

    assert rules.for_classification("secret").egress == limit([])
    assert rules.for_classification("other").egress == limit(["*.example"])


def test_adapters_are_told_a_default_and_exceptions():
    assert rules_of(limit(["a.example"], ["b.example"])) == EgressRules(
        EgressAction.DENY, ("a.example",), ("b.example",)
    )
    assert rules_of(limit([])) == EgressRules(EgressAction.DENY)
    assert rules_of(limit(deny=["b.example"])) == EgressRules(EgressAction.ALLOW, deny=("b.example",))


@pytest.mark.parametrize(
    ("asked", "scope", "features", "refused"),
    [
        (None, PolicyRules(), ("exec",), False),
        (limit(["a.example"]), PolicyRules(), ("exec",), True),
        (None, PolicyRules(egress=limit(deny=["a.example"])), ("exec",), True),
        (None, PolicyRules(pool_egress={"other": limit([])}), ("exec",), False),
        (None, PolicyRules(pool_egress={"pool": limit([])}), ("exec",), True),
        (limit([]), PolicyRules(egress=limit([])), ("exec", "network.egress-control"), False),
    ],
)
def test_a_pool_that_cannot_enforce_it_is_no_candidate(
    asked: EgressLimit | None, scope: PolicyRules, features: tuple[str, ...], refused: bool
):
    wish = Wish("sbx_1", a_size(), "default", egress=asked)

    decision = place(wish, [Candidate(a_pool(), a_view(features=features))], Rules([scope]), None)

    expected = {"pool": Rejection("egress_not_enforced", Permanence.NEVER)} if refused else {}
    assert decision.rejected == expected
