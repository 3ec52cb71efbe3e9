"""No expression of ours takes long on a text that was made to hurt it."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from re import _constants, _parser
from typing import Any

import pytest

PACKAGES = (
    "differently_core", "differently_adapters", "differently_api", "differently_scheduler", "differently_reconciler",
    "differently_local",
)  # fmt: skip
RUN_ON_IMPORT = ("__main__", "emulator_child", ".boot", ".testing")


def patterns() -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for package in PACKAGES:
        root = importlib.import_module(package)
        for found in pkgutil.walk_packages(root.__path__, f"{package}."):
            if any(part in found.name for part in RUN_ON_IMPORT):
                continue
            for name, value in vars(importlib.import_module(found.name)).items():
                if isinstance(value, re.Pattern) and isinstance(value.pattern, str) and value.pattern not in seen:
                    seen.add(value.pattern)
                    yield f"{found.name}.{name}", value.pattern


def repeats(tree: Any, inside: bool = False) -> bool:
    """Whether something without a bound is repeated within something without a bound."""
    for operation, argument in tree:
        if operation in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            _, most, inner = argument
            endless = most is _constants.MAXREPEAT
            if (endless and inside) or repeats(inner, inside or endless):
                return True
        elif (operation is _constants.SUBPATTERN and repeats(argument[-1], inside)) or (
            operation is _constants.BRANCH and any(repeats(branch, inside) for branch in argument[1])
        ):
            return True
    return False


@pytest.mark.parametrize(
    ("name", "pattern"), list(patterns()), ids=lambda value: value if "differently" in value else ""
)
def test_no_pattern_repeats_what_repeats(name: str, pattern: str) -> None:
    """features.md 2 #17: trimming slashes took for ever on a long row of them."""
    assert not repeats(_parser.parse(pattern)), name


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(?:x|(y*z)*)*", r"(\w+\s?)*$"])
def test_one_that_hurts_is_found(pattern: str) -> None:
    assert repeats(_parser.parse(pattern))
