"""What a pool is asked to start from: its own template, the image a template lists for it, or the caller's."""

from __future__ import annotations

import pytest

from differently_core.model.pool import Template
from differently_core.policy.starting import Start, start_of
from tests.support.builders import a_template

PLAIN = a_template("py")
LISTED = a_template("py", images={"here": "registry/py:3", "micro": "base-py"})


@pytest.mark.parametrize(
    ("image", "template", "pool", "offered", "expected"),
    [
        (None, PLAIN, "here", (), Start("py", None)),
        (None, None, "here", (), Start("py", None)),
        (None, LISTED, "here", (), Start("py", "registry/py:3")),
        (None, LISTED, "there", (), None),
        # The caller's image on a pool that takes any, whatever the template lists.
        ("mine:1", LISTED, "there", (), Start("py", "mine:1")),
        ("mine:1", LISTED, "here", (), Start("py", "mine:1")),
        ("mine:1", PLAIN, "here", (), Start("py", "mine:1")),
        # A backend with templates of its own takes these alone.
        (None, PLAIN, "micro", ("py", "go"), Start("py", None)),
        (None, PLAIN, "micro", ("go",), None),
        (None, LISTED, "micro", ("base-py",), Start("base-py", None)),
        (None, LISTED, "micro", ("py",), None),
        (None, LISTED, "other", ("py",), Start("py", None)),
        ("mine:1", LISTED, "micro", ("base-py",), None),
    ],
)
def test_where_a_sandbox_starts_from(
    image: str | None, template: Template | None, pool: str, offered: tuple[str, ...], expected: Start | None
):
    assert start_of("py", image, template, pool, offered) == expected
