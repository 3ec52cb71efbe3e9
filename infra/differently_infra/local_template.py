"""The data stack as one plain template, for the embedded AWS of `make run`.

    python -m differently_infra.local_template           write it
    python -m differently_infra.local_template --check   fail when the one in the tree is not current

It ships with the code, so that running on one machine needs neither Node nor the CDK. It is the deployed stack with
nothing left out; only CDK's bootstrap rule is, since nothing is uploaded for a template without assets.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from aws_cdk import App, DefaultStackSynthesizer

from .configuration import Configuration
from .stacks.data import DataStack

SHIPPED = Path(__file__).resolve().parents[2] / "local" / "differently_local" / "data_stack.template.json"


def template() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="differently-synth-") as outdir:
        app = App(outdir=outdir, analytics_reporting=False, tree_metadata=False)
        stack = DataStack(
            app,
            "Data",
            Configuration(),
            synthesizer=DefaultStackSynthesizer(generate_bootstrap_version_rule=False),
        )
        made: dict[str, Any] = app.synth().get_stack_by_name(stack.stack_name).template
    return made


def rendered() -> str:
    """The template as text that only changes when the stack does."""
    return json.dumps(template(), indent=2, sort_keys=True) + "\n"


def main(arguments: list[str]) -> int:
    text = rendered()
    if arguments == ["--check"]:
        if SHIPPED.is_file() and SHIPPED.read_text(encoding="utf-8") == text:
            return 0
        print(f"{SHIPPED.name} is not what the data stack synthesizes to now: run `make template`", file=sys.stderr)
        return 1
    if arguments:
        print("usage: python -m differently_infra.local_template [--check]", file=sys.stderr)
        return 2
    SHIPPED.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
