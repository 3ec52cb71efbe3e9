"""The locks: what they may hold, and that they agree with each other and with what is declared."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PIN = re.compile(r"^(?P<name>[a-z0-9._-]+)==(?P<version>[^ ]+)(?P<marker> ; [^/]+)? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")


def pins(lock: str) -> set[tuple[str, str]]:
    lines = (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8").splitlines()
    return {(match["name"], match["version"]) for match in map(PIN.match, lines) if match}


def declared() -> dict[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    client = tomllib.loads((ROOT / "clients" / "python" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {
        "runtime": project["project"]["dependencies"],
        "client": client["dependencies"] + client["optional-dependencies"]["cli"],
        **project["dependency-groups"],
    }


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_holds_pins_and_hashes_and_no_address(lock: Path) -> None:
    foreign = [
        line for line in lock.read_text(encoding="utf-8").splitlines() if not (PIN.match(line) or HASH.match(line))
    ]
    assert foreign == []


@pytest.mark.parametrize("part", ["runtime", "build", "client"])
def test_the_small_locks_agree_with_the_large_one(part: str) -> None:
    assert pins(part) <= pins("dev"), "one environment grows from the small lock to the large one: run `make lock`"


@pytest.mark.parametrize(
    ("lock", "groups"),
    [
        ("runtime", ["runtime"]),
        ("build", ["build"]),
        ("client", ["client"]),
        ("dev", ["runtime", "build", "client", "dev", "infra"]),
        ("tools", ["tools"]),
        ("emulator", ["emulator"]),
        ("opensandbox-sdk", ["opensandbox-sdk"]),
        ("e2b-sdk", ["e2b-sdk"]),
        ("daytona-sdk", ["daytona-sdk"]),
        ("opensandbox-server", ["opensandbox-server"]),
    ],
)
def test_everything_declared_is_locked(lock: str, groups: list[str]) -> None:
    locked = {name for name, _ in pins(lock)}
    wanted = {re.split(r"[^A-Za-z0-9._-]", entry)[0].lower() for group in groups for entry in declared()[group]}

    assert wanted - locked == set(), "run `make lock`"


def test_no_tool_of_ours_ships() -> None:
    shipped = {name for name, _ in pins("runtime")}

    assert shipped.isdisjoint({"typer", "rich", "pytest", "mypy", "aws-cdk-lib", "hatchling", "ministack", "uv"})
