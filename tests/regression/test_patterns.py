"""No expression of ours takes long on a text that was made to hurt it."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from re import _constants, _parser
from types import ModuleType
from typing import Any, NamedTuple

import pytest

PACKAGES = (
    "differently_core", "differently_adapters", "differently_aws", "differently_api", "differently_scheduler",
    "differently_reconciler", "differently_local",
)  # fmt: skip
RUN_ON_IMPORT = ("__main__", "emulator_child", ".boot", ".testing")
METHODS = frozenset({"match", "fullmatch", "search", "sub", "split", "findall", "finditer"})
SIZES = (400, 1_600, 6_400, 25_600, 102_400)
"""Four times as long at each step. One that takes its square takes sixteen times as long."""
GROWTH_MAX = 9.0
WORTH_TIMING_SECONDS = 0.001
"""Below that a growth says nothing; the square of 100,000 characters takes more than a thousand times as long."""
TRIES = 4
HURTING = (
    "a", "A", "0", "1", " ", "/", ".", "-", "_", ":", "=", "%", "\n", "\t", '"', "'", "\\", "[", "{", "(", "<", "é",
    "ab", "a-", "a.", "a/", "a:", "a=", "a%", "%2", "0.", "1,", ", ", "a b", "a\n", "--", "//", "..", "aA0_",
)  # fmt: skip
ENDS = ("", "!", "\n")


class Expression(NamedTuple):
    """An expression as it stands in the code; `methods` are those that it is used by."""

    where: str
    text: str
    flags: int
    methods: frozenset[str]


@cache
def expressions() -> tuple[Expression, ...]:
    """Compiled ones by the name that they are kept under, and those that stand in the call itself."""
    found: dict[tuple[str, int], Expression] = {}
    for module in modules():
        assert module.__file__ is not None
        tree = ast.parse(Path(module.__file__).read_text())
        for each in (*_compiled(module, tree), *_in_calls(module, tree)):
            known = found.get((each.text, each.flags))
            methods = each.methods | known.methods if known is not None else each.methods
            found[(each.text, each.flags)] = each._replace(methods=methods)
    return tuple(found.values())


def modules() -> Iterator[ModuleType]:
    for package in PACKAGES:
        root = importlib.import_module(package)
        for found in pkgutil.walk_packages(root.__path__, f"{package}."):
            if not any(part in found.name for part in RUN_ON_IMPORT):
                yield importlib.import_module(found.name)


def _compiled(module: ModuleType, tree: ast.AST) -> Iterator[Expression]:
    """Where a module does not show what it does with one, anything may be done with it."""
    used: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in METHODS and isinstance(node.value, ast.Name):
            used.setdefault(node.value.id, set()).add(node.attr)
    for name, value in vars(module).items():
        for pattern in value if isinstance(value, (tuple, list, frozenset)) else (value,):
            if isinstance(pattern, re.Pattern) and isinstance(pattern.pattern, str):
                methods = frozenset(used.get(name, METHODS))
                yield Expression(f"{module.__name__}.{name}", pattern.pattern, pattern.flags, methods)


def _in_calls(module: ModuleType, tree: ast.AST) -> Iterator[Expression]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
            continue
        if not isinstance(node.func.value, ast.Name) or node.func.value.id != "re" or node.func.attr not in METHODS:
            continue
        text = _told(module, node.args[0])
        flags = re.IGNORECASE if any("IGNORECASE" in ast.dump(part) for part in (*node.args, *node.keywords)) else 0
        yield Expression(f"{module.__name__}:{node.lineno}", text, int(flags), frozenset({node.func.attr}))


def _told(module: ModuleType, node: ast.expr) -> str:
    """A literal, or a constant of the module; anything else would be an expression that somebody else writes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    assert isinstance(node, ast.Name), f"{module.__name__}:{node.lineno} is made from what comes in"
    return str(vars(module)[node.id])


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


def hurts(text: str, flags: int, method: str) -> str | None:
    """A piece whose repetition makes the expression take more than in proportion."""
    run: Callable[[str], object] = _runner(re.compile(text, flags), method)
    for piece in HURTING:
        for end in ENDS:
            if all(_grows(run, piece, end) for _ in range(TRIES)):
                return f"{piece!r} and {end!r}"
    return None


def _runner(pattern: re.Pattern[str], method: str) -> Callable[[str], object]:
    if method == "sub":
        return lambda text: pattern.sub("", text)
    if method == "finditer":
        return lambda text: list(pattern.finditer(text))
    run: Callable[[str], object] = getattr(pattern, method)
    return run


def _grows(run: Callable[[str], object], piece: str, end: str) -> bool:
    """Stops at the first step that is too steep, so that one that takes for ever is not waited for."""
    before = 0.0
    for size in SIZES:
        text = piece * (size // len(piece)) + end
        began = time.thread_time()
        run(text)
        took = time.thread_time() - began
        if before > WORTH_TIMING_SECONDS and took > GROWTH_MAX * before:
            return True
        before = took
    return False


@pytest.mark.parametrize("expression", expressions(), ids=lambda each: each.where)
def test_no_pattern_repeats_what_repeats(expression: Expression) -> None:
    """features.md 2 #17: trimming slashes took for ever on a long row of them."""
    assert not repeats(_parser.parse(expression.text, expression.flags & ~re.UNICODE)), expression.where


@pytest.mark.parametrize("expression", expressions(), ids=lambda each: each.where)
def test_a_text_twice_as_long_takes_no_more_than_in_proportion(expression: Expression) -> None:
    for method in sorted(expression.methods):
        assert hurts(expression.text, expression.flags, method) is None, method


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(?:x|(y*z)*)*", r"(\w+\s?)*$"])
def test_one_that_hurts_is_found(pattern: str) -> None:
    assert repeats(_parser.parse(pattern))


@pytest.mark.parametrize(("pattern", "method"), [(r"/+$", "search"), (r"a*a*b", "match"), (r"\s+(?=x)", "sub")])
def test_one_that_takes_the_square_is_found(pattern: str, method: str) -> None:
    assert not repeats(_parser.parse(pattern))
    assert hurts(pattern, 0, method) is not None
