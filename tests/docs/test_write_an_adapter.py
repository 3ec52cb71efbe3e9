"""The example of the how-to passes the suite that it tells of, and the page quotes it as it is."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from differently_adapters.testing import AdapterConformance, CannotHappen, Mishap
from differently_core.contract import (
    LABEL_INSTALLATION,
    LABEL_SANDBOX,
    Adapter,
    AdapterContext,
    Operation,
    Owner,
    Target,
    validate,
    validate_registration,
)
from differently_core.runtime.clock import SystemClock

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
PAGE = HOW_TO / "write-an-adapter.md"


def _example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lab_fleet", HOW_TO / "lab_fleet.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["lab_fleet"] = module
    spec.loader.exec_module(module)
    return module


lab_fleet = _example()


class FleetUnderTest:
    """The lab's fleet, and what can befall it."""

    def __init__(self, root: Path) -> None:
        self.fleet = lab_fleet.Fleet(root)

    def count(self) -> int:
        return len(self.fleet.machines)

    def state_digest(self) -> str:
        return repr(self.fleet.machines)

    def go_down(self) -> None:
        self.fleet.up = False

    def come_up(self) -> None:
        self.fleet.up = True

    def plant_foreign(self, ours: Owner, theirs: Owner) -> Target:
        tags = {LABEL_INSTALLATION: theirs.installation, LABEL_SANDBOX: theirs.sandbox}
        self.fleet.machines[ours.sandbox] = lab_fleet.Machine(ours.sandbox, tags, {})
        return Target(ours, ours.sandbox)

    def lose_answer(self, operation: Operation) -> None:
        """Nothing lies between the adapter and the fleet: the suite throws the answer away."""

    def break_list(self) -> None:
        self.fleet.silent.add("everything")

    @contextlib.contextmanager
    def losing_completions(self) -> Iterator[None]:
        self.fleet.silent.add("run")
        yield
        self.fleet.silent.clear()

    def arrange(self, mishap: Mishap) -> None:
        raise CannotHappen("the fleet does not do that")

    def requests(self, operation: Operation) -> int:
        raise CannotHappen("nobody counts them")

    def delay_create(self) -> None:
        raise CannotHappen("a machine is there when the call ends")

    def settle(self) -> None:
        raise CannotHappen("a machine is there when the call ends")

    def snapshots(self) -> int:
        raise CannotHappen("there are none")


class TestLabFleet(AdapterConformance):
    kind = "lab-fleet"

    @pytest.fixture
    def backend(self, tmp_path: Path) -> FleetUnderTest:
        return FleetUnderTest(tmp_path)

    @pytest.fixture
    def adapter(self, backend: FleetUnderTest) -> Adapter:
        context = AdapterContext("lab", "inst_any", lab_fleet.LabFleetConfig(), SystemClock())
        made: Adapter = lab_fleet.LabFleetAdapter(context, backend.fleet)
        return made


def test_the_example_is_registered_whole() -> None:
    validate(lab_fleet.LabFleetAdapter)
    validate_registration(lab_fleet.REGISTRATION, lab_fleet.LabFleetAdapter)


def test_every_piece_of_code_on_the_page_is_in_the_example_or_in_this_test() -> None:
    tested = (HOW_TO / "lab_fleet.py").read_text() + Path(__file__).read_text()
    pieces = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(pieces) >= 4
    for piece in pieces:
        for part in piece.split("    # …\n"):
            assert part.strip("\n") in tested, part
