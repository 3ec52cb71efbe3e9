"""What users import is listed; what is made from other code is current."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import differently
from differently import errors
from differently._bodies import create_body
from differently._sync.sandbox import Sandboxes

ROOT = Path(__file__).parents[3]
PUBLIC = [
    "ApiError", "AsyncClient", "AsyncJob", "AsyncSandbox", "AsyncSnapshot", "Client", "DifferentlyError", "Event",
    "Exit", "Job", "Output", "Progress", "Result", "Sandbox", "Snapshot", "__version__",
]  # fmt: skip


def test_every_module_is_python_of_3_9() -> None:
    """Where such an interpreter is at hand: `python3.9 -m pytest --noconftest -c /dev/null tests/unit/client`."""
    paths = sorted(Path(str(differently.__file__)).parent.rglob("*.py"))
    assert len(paths) > 40
    for path in paths:
        ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 9))


def test_modules_of_commands_show_their_options_to_typer_of_3_9() -> None:
    """With annotations kept as text, Typer sees no option there: `-o json` was unknown."""
    folder = Path(str(differently.__file__)).parent / "cli"
    for path in folder.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "typer.Typer(" in text or "add_to" in text:
            assert "from __future__ import annotations\n" not in text, path.name


def test_the_public_names_are_these_and_all_are_there() -> None:
    assert differently.__all__ == PUBLIC
    for name in PUBLIC:
        assert getattr(differently, name) is not None
    for name in errors.__all__:
        assert getattr(errors, name) is not None


def test_an_unknown_name_is_told_as_python_does() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Sandbx'"):
        differently.Sandbx  # noqa: B018


def test_a_create_takes_what_a_body_can_hold() -> None:
    taken = set(inspect.signature(Sandboxes.create).parameters)
    assert set(inspect.signature(create_body).parameters) - {"kind"} <= taken


def test_importing_the_package_loads_no_transport() -> None:
    """A command line that only prints its help must start at once."""
    code = "import sys, differently, differently.logins; print('httpx' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_no_page_tells_users_to_install_another_projects_package() -> None:
    """The name `differently` on PyPI is somebody else's."""
    foreign = re.compile(
        r"(?:pip3?|pipx|uv|poetry|pdm)\b[^\n]*\b(?:install|add|tool|run)\b[^\n]*[ '\"]differently(?![-\w/])"
    )
    assert foreign.search("pip install -U differently")
    assert foreign.search("uv add 'differently[cli]'")
    assert not foreign.search("pip install 'differently-sandbox[cli]'")
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "clients").rglob("*.md")]
    assert [str(page) for page in pages if foreign.search(page.read_text(encoding="utf-8"))] == []


@pytest.mark.skipif(sys.version_info < (3, 11), reason="written with the tools of the development environment")
def test_the_client_without_asyncio_is_current() -> None:
    """If not: python scripts/sync_client.py"""
    run = subprocess.run(
        [sys.executable, ROOT / "scripts" / "sync_client.py", "--check"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr


def test_the_written_reference_of_the_command_line_is_current() -> None:
    """If not: python -m differently.cli.reference docs/reference/cli.md"""
    pytest.importorskip("typer")
    from differently.cli.reference import page

    assert (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8") == page()
