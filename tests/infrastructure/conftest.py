"""The CDK starts the `node` that it finds on PATH when it is imported: it must be the locked one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


@pytest.fixture(scope="session")
def data_template() -> Any:
    """The data stack as it is deployed, for assertions."""
    from aws_cdk import App
    from aws_cdk.assertions import Template

    from differently_infra.configuration import Configuration
    from differently_infra.stacks.data import DataStack

    return Template.from_stack(DataStack(App(), "Data", Configuration()))


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders as `make layers` makes them, with next to nothing in them: templates only name what code is in."""
    from differently_infra.packaging import FUNCTIONS

    folder = tmp_path_factory.mktemp("packages")
    for name in ("dependencies", "code", *FUNCTIONS):
        (folder / name).mkdir()
        (folder / name / "module.py").write_text(f"# {name}\n")
    return folder


class Deployed:
    """The templates of one configuration."""

    def __init__(self, packages: Path, **configuration: Any) -> None:
        from aws_cdk import App
        from aws_cdk.assertions import Template

        from differently_infra.configuration import parse
        from differently_infra.deployment import Deployment
        from differently_infra.packages import Packages

        app = App(context={"aws:cdk:disable-asset-staging": True})
        deployment = Deployment(app, parse(configuration, "test"), Packages.of(packages))
        parts = ("data", "secrets", "network", "workers", "workflow", "api", "observability")
        made = {part: getattr(deployment, part) for part in parts if getattr(deployment, part) is not None}
        self.templates: dict[str, Any] = {part: Template.from_stack(stack) for part, stack in made.items()}

    def resources(self, kind: str) -> dict[str, dict[str, Any]]:
        """Of all stacks, by stack and logical id."""
        return {
            f"{part}.{logical_id}": resource
            for part, template in self.templates.items()
            for logical_id, resource in template.find_resources(kind).items()
        }

    def functions(self) -> dict[str, dict[str, Any]]:
        """Properties by the name in the table of functions."""
        found = self.resources("AWS::Lambda::Function").values()
        return {entry["Properties"]["FunctionName"].partition("-")[2]: entry["Properties"] for entry in found}

    def role(self, name: str) -> dict[str, Any]:
        """Properties of a function's role."""
        roles = self.resources("AWS::IAM::Role")
        return next(role["Properties"] for key, role in roles.items() if key.split(".")[1].startswith(f"{name}Role"))

    def statements(self) -> dict[str, list[dict[str, Any]]]:
        """Of every policy that is attached to a role, by the policy's place."""
        return {
            key: policy["Properties"]["PolicyDocument"]["Statement"]
            for key, policy in self.resources("AWS::IAM::Policy").items()
        }


CREDENTIAL = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:pools/eu-AbCdEf"


@pytest.fixture(scope="session")
def deployed(packages: Path) -> Deployed:
    """The default configuration."""
    return Deployed(packages)


@pytest.fixture(scope="session")
def private(packages: Path) -> Deployed:
    """In a VPC without a way out, with everything that costs money switched on."""
    return Deployed(
        packages,
        network={"vpc": True, "natGateways": 0},
        waf={"enabled": True},
        adapters={"minimumLevel": "vendor SDK", "credentialArns": [CREDENTIAL]},
    )
