"""What an installation costs in a month in which nobody asks it for anything.

    python -m differently_infra.price [deployment.toml]

List prices of us-east-1, November 2026, in US dollars, without free tiers of new accounts. What is used comes on top:
docs/how-to/deploy.md reckons a million sandbox lives.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .configuration import FILE, Configuration, Unusable, read
from .functions import memory
from .watch import ALARMS

HOURS: Final = 730
MINUTES: Final = 43_800
KMS_KEY: Final = 1.0
SECRET: Final = 0.40
INVOCATION: Final = 0.20 / 1_000_000
GIB_SECOND: Final = 0.0000133334
"""Of a function on arm64."""
READ_UNIT: Final = 0.125 / 1_000_000
WRITE_UNIT: Final = 0.625 / 1_000_000
LOG_GB: Final = 0.50
ALARM_SERIES: Final = 0.10
METRIC_SERIES: Final = 0.30
NAT_HOUR: Final = 0.045
ENDPOINT_HOUR: Final = 0.01
WAF_ACL: Final = 5.0
WAF_RULE: Final = 1.0

TICKS: Final = 5
"""Messages of the clock a minute: four for the tick, one for the sealer."""
TICK_SECONDS: Final = 0.15
"""What one takes when nothing is due: a query of each shard, or of the pools."""
TICK_READS: Final = 16
TICK_LINE_BYTES: Final = 500
IDLE_SERIES: Final = 3
"""Metrics that appear although nobody asks: sweeps, what they found, reconciliations."""
ZONES: Final = 2
ENDPOINTS: Final = 5
WAF_RULES: Final = 2


@dataclass(frozen=True)
class Line:
    what: str
    dollars: float


def idle_month(configuration: Configuration) -> list[Line]:
    return [line for line in _lines(configuration) if line.dollars > 0]


def _lines(configuration: Configuration) -> Iterator[Line]:
    ticks = TICKS * MINUTES
    seconds = ticks * TICK_SECONDS * memory(configuration, "tick") / 1024
    yield Line("the key that seals credentials (KMS)", KMS_KEY)
    yield Line("the peppers of API keys (Secrets Manager)", SECRET)
    yield Line("the clock: five short runs a minute (Lambda)", ticks * INVOCATION + seconds * GIB_SECOND)
    yield Line("what it reads (DynamoDB)", ticks * TICK_READS * READ_UNIT)
    yield Line("what it writes down (CloudWatch Logs)", ticks * TICK_LINE_BYTES / 1e9 * LOG_GB)
    if configuration.alarms.enabled:
        series = sum(len(alarm.series) for alarm in ALARMS)
        yield Line(f"{len(ALARMS)} alarms on {series} series of metrics", series * ALARM_SERIES)
    if configuration.logs.metrics:
        yield Line(f"{IDLE_SERIES} series of metrics", IDLE_SERIES * METRIC_SERIES)
    if configuration.network.vpc:
        yield Line(f"{configuration.network.nat_gateways} NAT gateways", _nat(configuration))
        yield Line(f"{ENDPOINTS} interface endpoints in {ZONES} zones", _endpoints(configuration))
    if configuration.waf.enabled:
        yield Line("AWS WAF", WAF_ACL + WAF_RULES * WAF_RULE)


def _nat(configuration: Configuration) -> float:
    return configuration.network.nat_gateways * HOURS * NAT_HOUR


def _endpoints(configuration: Configuration) -> float:
    return ENDPOINTS * ZONES * HOURS * ENDPOINT_HOUR if configuration.network.nat_gateways == 0 else 0.0


def shown(lines: Sequence[Line]) -> str:
    total = sum(line.dollars for line in lines)
    rows = [*lines, Line("a month in which nobody asks for anything", total)]
    return "\n".join(f"{line.dollars:8.2f}  {line.what}" for line in rows)


def main(arguments: Sequence[str]) -> int:
    default = Path(FILE)
    path = Path(arguments[0]) if arguments else default if default.exists() else None
    try:
        print(shown(idle_month(read(path))))
    except Unusable as error:
        print(f"price: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
