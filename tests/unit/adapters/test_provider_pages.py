"""Each kind that a deployment can use has a page, whose example is taken and which names every field there is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from differently_adapters.registry import KINDS, TrustList, load

PAGES = Path(__file__).parents[3] / "docs" / "providers"
PLUGINS = "remote"
"""Has a how-to in the place of a page."""
DEPLOYED = [kind for kind, row in KINDS.items() if row.trust is not TrustList.DEV_ONLY and kind != PLUGINS]


@pytest.mark.parametrize("kind", DEPLOYED)
def test_a_page_shows_a_configuration_that_is_taken_and_names_each_field(kind: str) -> None:
    """Pages of E2B and Daytona once showed fields that do not exist."""
    page = (PAGES / f"{kind}.md").read_text()
    config = load(kind).registration.config
    example = re.search(r"```json\n(.*?)```", page, re.DOTALL)
    assert example is not None
    config.model_validate(json.loads(example[1]))
    fields = [field.alias or name for name, field in config.model_fields.items()]
    assert [name for name in fields if f"`{name}`" not in page] == []
