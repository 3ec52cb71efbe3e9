"""The table of what is shown by which test has no gap, and every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "features.md"
REASON_CHARACTERS_MIN = 20
FEATURES = (
    "One v1 API over every pool", "Idempotency-Key", "Validation of capabilities", "Optional operation missing",
    "Streamed exec, buffered fallback", "Files", "CORS", "Organizations, projects, scoped keys",
    "Operator key names the project", "Rotation with grace", "Reserved labels", "Atomic admission and activation",
    "Fair queue", "Full pool waits", "Paused frees its slot", "Queue timeout", "Fail-closed external",
    "Three policy scopes", "Private first", "Pinning", "Only capabilities block", "Limits and fragmentation",
    "Templates per pool", "Explanation", "Capabilities per tenant", "Provision once", "Failure classes",
    "Termination", "Orphans, adoption, requeue, lost, state follow", "Grace and partial lists",
    "Two pools, one backend", "Stop, start, pause, resume, fork, snapshots", "Idle stop and wake",
    "Native idle pools", "Preemption, maxRunSeconds", "TTL", "Adapters", "Contract v1 over HTTP", "Trust lists",
    "OpenSandbox runtimes", "Sealed, write-only, live rotation", "Tamper-evident chain", "Audit fails closed",
    "Newest first paging", "Trust report", "Usage estimates", "Budgets", "Metrics", "CLI", "Preflight", "Console",
    "Console: static or server mode", "SDKs", "Deploy", "Provider catalog", "Capacity model",
)  # fmt: skip
FAULTS = (
    "1", "3", "6", "7", "10", "11", "12", "13", "16", "17", "20", "22", "23, 25, 27", "25, 28", "32", "39, 41", "45",
    "49", "50", "51", "53", "61", "72", "73", "74", "75", "76", "77", "78", "79", "80", "83", "84", "85",
)  # fmt: skip
GAPS = (
    "Protocol header", "Conformance suite", "Two instances for one sandbox", "TTL change at OpenSandbox",
    "Unbounded output, silent cuts", "templateId hides the image", "Ready wait over the provision limit",
    "Pool of a vanished kind", "Provider filters are trusted", "Stream errors lose their code",
    "End-to-end suite not run", "No scaling signal",
)  # fmt: skip
REPORTS = (
    "S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "S11", "S12", "S13", "S14", "S15", "S16", "S17",
    "S18", "S19", "S20",
)  # fmt: skip
SECTIONS = {
    "Features": FEATURES, "Faults that became rules": FAULTS, "Gaps that are closed": GAPS, "Reports of users": REPORTS,
}  # fmt: skip
_LINK = re.compile(r"\[`(test_\w+)`\]\(([^)]+)\)")


def rows(section: str) -> dict[str, str]:
    """What shows each row, by its first cell."""
    text = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")][1:]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert all(len(row) == 3 for row in cells), cells
    return {row[0]: row[2] for row in cells}


@pytest.mark.parametrize("section", SECTIONS)
def test_no_row_is_missing(section: str) -> None:
    assert tuple(rows(section)) == SECTIONS[section]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_row_names_tests_that_are_there_or_says_what_is_missing(section: str) -> None:
    for name, shown in rows(section).items():
        links = _LINK.findall(shown)
        if not links:
            assert shown.startswith("not yet: "), name
            assert len(shown) > REASON_CHARACTERS_MIN, name
        for test, target in links:
            path = (PAGE.parent / target).resolve()
            assert path.is_file(), f"{name}: {target}"
            assert re.search(rf"\bdef {test}\(", path.read_text()), f"{name}: {test}"


def test_links_that_lead_nowhere_are_found() -> None:
    assert _LINK.findall("[`test_a`](../../tests/x.py), [`test_b`](y)") == [
        ("test_a", "../../tests/x.py"),
        ("test_b", "y"),
    ]
