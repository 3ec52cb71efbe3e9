"""Ports that are made reachable, and rules for what a sandbox may reach."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import urlsplit

import pytest

from differently_core.contract import Adapter, EgressAction, EgressRules, Operation, Target
from differently_core.errors import BackendError, InvalidRequest
from differently_core.runtime.clock import Clock

from .backend import BackendUnderTest, Mishap
from .calls import unheard
from .fixtures import Arrange, SuiteFixtures, needs

PORT = 8080
SECONDS = 600
SLACK = timedelta(seconds=60)
DENY_ALL = EgressRules(EgressAction.DENY)
SOME = EgressRules(EgressAction.DENY, allow=("example.com", "203.0.113.7", "198.51.100.0/24"))


class PortTests(SuiteFixtures):
    def test_an_exposed_port_has_an_address_for_about_its_time(
        self, adapter: Adapter, sandbox: Target, clock: Clock
    ) -> None:
        needs(adapter, Operation.PORT_EXPOSE)
        made = adapter.port_expose(sandbox, PORT, SECONDS)
        parts = urlsplit(made.url)
        assert made.port == PORT
        assert parts.scheme in {"http", "https"}
        assert parts.hostname
        assert made.expires_at is None or made.expires_at <= clock.now() + timedelta(seconds=SECONDS) + SLACK
        assert made.url not in repr(made)

    def test_an_address_holds_no_credential_of_ours(self, adapter: Adapter, sandbox: Target) -> None:
        needs(adapter, Operation.PORT_EXPOSE)
        url = adapter.port_expose(sandbox, PORT, SECONDS).url
        assert not any(secret in url for secret in self.secrets)

    def test_revoking_is_done_once_and_asked_for_often(self, adapter: Adapter, sandbox: Target) -> None:
        needs(adapter, Operation.PORT_EXPOSE, Operation.PORT_REVOKE)
        adapter.port_expose(sandbox, PORT, SECONDS)
        for port in (PORT, PORT, PORT + 1):
            adapter.port_revoke(sandbox, port)
        assert adapter.port_expose(sandbox, PORT, SECONDS).port == PORT

    @pytest.mark.parametrize("port", [0, -1, 65_536])
    def test_a_port_that_is_none_is_refused(self, adapter: Adapter, sandbox: Target, port: int) -> None:
        needs(adapter, Operation.PORT_EXPOSE)
        with pytest.raises(InvalidRequest):
            adapter.port_expose(sandbox, port, SECONDS)

    def test_an_exposure_whose_answer_was_lost_is_asked_for_again(
        self, adapter: Adapter, restarted: Adapter, backend: BackendUnderTest, sandbox: Target
    ) -> None:
        needs(adapter, Operation.PORT_EXPOSE)
        backend.lose_answer(Operation.PORT_EXPOSE)
        unheard(lambda: adapter.port_expose(sandbox, PORT, SECONDS))
        assert restarted.port_expose(sandbox, PORT, SECONDS).port == PORT


class EgressTests(SuiteFixtures):
    def test_rules_are_replaced_and_may_be_set_again(
        self, adapter: Adapter, backend: BackendUnderTest, sandbox: Target
    ) -> None:
        needs(adapter, Operation.EGRESS_SET)
        adapter.egress_set(sandbox, SOME)
        some = backend.state_digest()
        adapter.egress_set(sandbox, DENY_ALL)
        assert backend.state_digest() != some
        for _ in range(2):
            adapter.egress_set(sandbox, SOME)
        assert backend.state_digest() == some

    def test_rules_that_are_not_in_force_are_never_told_as_success(
        self, adapter: Adapter, sandbox: Target, arrange: Arrange
    ) -> None:
        needs(adapter, Operation.EGRESS_SET)
        arrange(Mishap.EGRESS_UNCONFIRMED)
        with pytest.raises(BackendError) as unsure:
            adapter.egress_set(sandbox, DENY_ALL)
        assert not unsure.value.settled
        adapter.egress_set(sandbox, DENY_ALL)

    @pytest.mark.parametrize("peer", ["", "two words", "http://example.com/path", "10.0.0.0/8/8", "a\nb"])
    def test_a_rule_that_is_no_peer_is_refused_and_the_old_ones_stay(
        self, adapter: Adapter, backend: BackendUnderTest, sandbox: Target, peer: str
    ) -> None:
        needs(adapter, Operation.EGRESS_SET)
        adapter.egress_set(sandbox, SOME)
        before = backend.state_digest()
        with pytest.raises(InvalidRequest):
            adapter.egress_set(sandbox, EgressRules(EgressAction.ALLOW, deny=(peer,)))
        assert backend.state_digest() == before

    def test_rules_whose_answer_was_lost_are_set_again(
        self, adapter: Adapter, backend: BackendUnderTest, sandbox: Target
    ) -> None:
        needs(adapter, Operation.EGRESS_SET)
        backend.lose_answer(Operation.EGRESS_SET)
        unheard(lambda: adapter.egress_set(sandbox, SOME))
        adapter.egress_set(sandbox, SOME)
