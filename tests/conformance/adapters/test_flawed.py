"""The suite finds each flaw that we could think of."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.conformance.adapters import flawed

ROOT = Path(__file__).parents[3]


def test_each_flaw_is_found_by_the_test_that_is_meant_to_find_it() -> None:
    file = Path(flawed.__file__).relative_to(ROOT)
    tests = [f"{file}::TestFlawed::{test}" for test in flawed.FLAWS]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist", *tests],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=110,
    )  # fmt: skip
    failed = set(re.findall(r"^FAILED .*?TestFlawed::(.*?)(?: - .*)?$", run.stdout, re.MULTILINE))
    assert set(flawed.FLAWS) - failed == set(), run.stdout
