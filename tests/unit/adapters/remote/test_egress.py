"""What a sandbox may reach travels with the create, and is absent from it where nothing is limited."""

from __future__ import annotations

from dataclasses import replace

import pytest

from differently_adapters.remote.wire import ToldCreate
from differently_core.contract import CreateRequest, EgressAction, EgressRules, Owner
from tests.support.builders import a_size

PLAIN = CreateRequest(Owner("inst_1", "sbx_1"), "org_1", "proj_1", "default", None, a_size(), 60)


@pytest.mark.parametrize(
    "rules", [EgressRules(EgressAction.DENY), EgressRules(EgressAction.ALLOW, deny=("10.0.0.0/8", "*.example.com"))]
)
def test_rules_come_out_as_they_went_in(rules: EgressRules):
    sent = ToldCreate.of(replace(PLAIN, egress=rules)).json_()

    assert ToldCreate.model_validate(sent).value(None).egress == rules


def test_a_create_without_rules_looks_as_it_always_did():
    assert "egress" not in ToldCreate.of(PLAIN).json_()
