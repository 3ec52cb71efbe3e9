"""Stories of the docs, run as written: every block marked as story, in one shell, against a real `make run`.

An output block after a command block must match what the commands printed; `…` stands for anything.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.plane import Plane

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- story -->\n```sh\n(?P<code>.*?)```\n(?:```text\n(?P<output>.*?)```\n)?", re.DOTALL)
MARK = "--- end of a block ---"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which `make run` is running, as the reader's second terminal sees it."""
    here = tmp_path_factory.mktemp("reader")
    (here / ".venv").symlink_to(ROOT / ".venv")
    plane = Plane(here / ".differently")
    try:
        plane.start(WEBHOOKS_ALLOW_LOOPBACK="true")
        # The reader is in the checkout.
        (here / "clients").symlink_to(ROOT / "clients")
        yield here
    finally:
        plane.clean_up()


def matches(expected: str, printed: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in expected.strip().split("…"))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


STORIES = {
    "README.md": 12,
    "docs/tutorial/first-sandbox.md": 6,
    "docs/how-to/snapshots.md": 5,
    "docs/how-to/usage-and-budgets.md": 1,
    "docs/how-to/webhooks.md": 4,
    "docs/how-to/verify-the-audit-log.md": 4,
}
"""Pages with a story, and how many blocks it has at least."""


@pytest.mark.parametrize("page", STORIES)
def test_a_story_works_as_written(folder: Path, page: str) -> None:
    blocks = list(BLOCK.finditer((ROOT / page).read_text()))
    assert len(blocks) >= STORIES[page], "the story lost its marks"
    script = "\n".join(f"{block['code']}\nprintf '%s\\n' '{MARK}'" for block in blocks)
    run = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", script], cwd=folder, capture_output=True, text=True, timeout=120
    )
    printed = run.stdout.split(f"{MARK}\n")
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
    for block, output in zip(blocks, printed, strict=False):
        assert matches(block["output"] or "", output), f"{block['code']}\nprinted\n{output}\nnot\n{block['output']}"


@pytest.mark.parametrize(
    "page",
    sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")),
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"
