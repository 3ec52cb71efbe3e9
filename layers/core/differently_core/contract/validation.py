"""A declaration held against its class: contradictions are found when a kind is loaded, before anything is called."""

from __future__ import annotations

import inspect

from ..model import features
from .adapter import Adapter
from .operations import BACKED_BY, NEEDS, REQUIRED, TOGETHER, Operation, Supported, Unsupported
from .refusing import NotOffered


class ContractError(TypeError):
    """An adapter's declaration contradicts its class; raised when the kind is loaded, before anything is called."""


def validate(adapter: type[Adapter]) -> None:
    """Check a class against its own declaration; raises `ContractError` naming the first wrong entry."""
    name = adapter.__name__
    declared = adapter.operations
    for operation in Operation:
        if operation not in declared:
            raise ContractError(f"{name} does not declare {operation}")
        if not callable(inspect.getattr_static(adapter, operation.value, None)):
            raise ContractError(f"{name} has no method {operation}")
        support = declared[operation]
        if isinstance(support, Unsupported):
            if operation in REQUIRED:
                raise ContractError(f"{name} declares the required operation {operation} unsupported")
            if not support.reason.isidentifier() or support.reason != support.reason.lower():
                raise ContractError(f"{name} declares {operation} unsupported without a reason code")
        elif not isinstance(support, Supported):
            raise ContractError(f"{name} declares {operation} as {support!r}")
        elif getattr(adapter, operation.value) is getattr(NotOffered, operation.value, None):
            raise ContractError(f"{name} declares {operation} supported and does not implement it")
    unknown = [str(entry) for entry in declared if entry not in list(Operation)]
    if unknown:
        raise ContractError(f"{name} declares unknown operations: {', '.join(unknown)}")
    for group in TOGETHER:
        if len({type(declared[operation]) for operation in group}) > 1:
            raise ContractError(f"{name} must declare together: {', '.join(sorted(group))}")
    for operation, needed in NEEDS.items():
        if isinstance(declared[operation], Supported) and isinstance(declared[needed], Unsupported):
            raise ContractError(f"{name} declares {operation} without {needed}")


def supports(adapter: Adapter, operation: Operation) -> bool:
    return isinstance(adapter.operations[operation], Supported)


def effective_features(adapter: Adapter, advertised: frozenset[str]) -> frozenset[str]:
    """What a pool may advertise: features whose operation is declared, and those that no operation backs."""
    return frozenset(
        feature
        for feature in advertised & features.KNOWN
        if feature not in BACKED_BY or supports(adapter, BACKED_BY[feature])
    )
