"""The CDK application: `cdk deploy` runs it, and so does `make synth`.

It reads `deployment.toml` in the current folder if there is one; `-c config=path` names another, `-c packages=folder`
other code than `dist/lambda`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from aws_cdk import App, Environment

from .configuration import FILE, Unusable, read
from .deployment import Deployment
from .nag import guard
from .packages import Packages, Unbuilt, check_image
from .packaging import ROOT


def main() -> int:
    app = App()
    guard(app)
    named = app.node.try_get_context("config")
    default = Path(FILE)
    try:
        configuration = read(Path(named) if named else default if default.exists() else None)
        check_image(configuration.microvms)
        packages = Packages.of(Path(app.node.try_get_context("packages") or ROOT / "dist" / "lambda"))
    except (Unusable, Unbuilt) as error:
        print(f"deployment: {error}", file=sys.stderr)
        return 1
    account, region = os.environ.get("CDK_DEFAULT_ACCOUNT"), os.environ.get("CDK_DEFAULT_REGION")
    Deployment(app, configuration, packages, Environment(account=account, region=region))
    app.synth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
