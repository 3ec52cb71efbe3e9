"""The price of a month without use follows from the configuration."""

from __future__ import annotations

import pytest

from differently_infra import price
from differently_infra.configuration import Configuration, Network, Waf
from differently_infra.reference import PAGE, page


def total(configuration: Configuration) -> float:
    return sum(line.dollars for line in price.idle_month(configuration))


def test_an_installation_that_nobody_uses_costs_next_to_nothing() -> None:
    assert 1.0 < total(Configuration()) < 7.0


@pytest.mark.parametrize(
    ("network", "added"),
    [
        (Network(vpc=True), 0.045 * 730),
        (Network(vpc=True, nat_gateways=2), 2 * 0.045 * 730),
        (Network(vpc=True, nat_gateways=0), 10 * 0.01 * 730),
        (Network(vpc=False, nat_gateways=2), 0.0),
    ],
)
def test_a_vpc_costs_by_its_ways_out(network: Network, added: float) -> None:
    assert total(Configuration(network=network)) - total(Configuration()) == pytest.approx(added)


def test_a_filter_costs_what_its_rules_do() -> None:
    assert total(Configuration(waf=Waf(enabled=True))) - total(Configuration()) == pytest.approx(7.0)


def test_the_sum_is_the_last_line() -> None:
    lines = price.shown(price.idle_month(Configuration())).splitlines()
    assert float(lines[-1].split()[0]) == pytest.approx(sum(float(line.split()[0]) for line in lines[:-1]), abs=0.05)


def test_the_written_reference_of_the_configuration_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m differently_infra.reference`"
