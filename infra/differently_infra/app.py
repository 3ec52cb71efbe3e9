"""The CDK application: `cdk deploy` runs it, and so does `make synth`."""

from __future__ import annotations

from aws_cdk import App

from .nag import guard
from .settings import DataSettings
from .stacks.data import DataStack


def main() -> None:
    app = App()
    guard(app)
    DataStack(
        app,
        "Differently-Data",
        DataSettings.from_context(app.node),
        description="Differently: configuration, state and log",
    )
    app.synth()


if __name__ == "__main__":
    main()
