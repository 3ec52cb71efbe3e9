"""Every configuration that ships, synthesized under the security rules and linted as CloudFormation.

python -m differently_infra.check OUTPUT
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from aws_cdk import App

from .configuration import Configuration, Unusable, read
from .deployment import Deployment
from .nag import guard
from .packages import Packages, Unbuilt
from .packaging import ROOT

SHIPPED: Final = ROOT / "infra" / "configurations"
MADE_BY_CDK: Final = ("W3005",)
"""cfn-lint's warnings about what CDK writes by itself: dependencies that are implied already."""


def configurations() -> dict[str, Configuration]:
    """By name; `default` is the one of an empty file."""
    return {"default": Configuration(), **{path.stem: read(path) for path in sorted(SHIPPED.glob("*.toml"))}}


def synthesize(name: str, configuration: Configuration, packages: Packages, output: Path) -> list[Path]:
    """The templates; raises when a rule finds something, which CDK has printed by then."""
    # Nothing is deployed from here, so code is not copied.
    context = {"aws:cdk:disable-asset-staging": True}
    app = App(outdir=str(output / name), analytics_reporting=False, context=context)
    guard(app)
    Deployment(app, configuration, packages)
    app.synth()
    return sorted((output / name).glob("*.template.json"))


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m differently_infra.check OUTPUT", file=sys.stderr)
        return 2
    try:
        packages = Packages.of(ROOT / "dist" / "lambda")
        templates = [
            template
            for name, configuration in configurations().items()
            for template in synthesize(name, configuration, packages, Path(arguments[0]))
        ]
    except (Unusable, Unbuilt) as error:
        print(f"check: {error}", file=sys.stderr)
        return 1
    except RuntimeError as error:
        print(f"check: {error}", file=sys.stderr)
        return 1
    return lint(templates)


def lint(templates: list[Path]) -> int:
    linter = str(Path(sys.executable).with_name("cfn-lint"))
    command = [linter, "--format", "parseable", "--ignore-checks", *MADE_BY_CDK, "--"]
    return subprocess.run([*command, *map(str, templates)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
