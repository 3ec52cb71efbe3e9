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

    from differently_infra.settings import DataSettings
    from differently_infra.stacks.data import DataStack

    return Template.from_stack(DataStack(App(), "Data", DataSettings()))
