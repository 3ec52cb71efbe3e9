"""What an operator may choose about a deployment, read from the CDK context (`-c name=value`)."""

from __future__ import annotations

from dataclasses import dataclass

from constructs import Node


@dataclass(frozen=True)
class DataSettings:
    """Ceilings for the on-demand tables and each of their indexes: a bound on the bill, not a reservation.

    None leaves DynamoDB's own account limits as the only ones.
    """

    max_read_units: int | None = None
    max_write_units: int | None = None

    @classmethod
    def from_context(cls, node: Node) -> DataSettings:
        return cls(
            max_read_units=_units(node, "maxReadUnits"),
            max_write_units=_units(node, "maxWriteUnits"),
        )


def _units(node: Node, name: str) -> int | None:
    value = node.try_get_context(name)
    if value is None:
        return None
    if not str(value).isdecimal() or int(value) == 0:
        raise ValueError(f"context {name} is a whole number of request units above zero, not {value!r}")
    return int(value)
