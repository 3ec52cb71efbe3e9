"""A function that was told too little says which variable is missing, and nothing of the others."""

from __future__ import annotations

import pytest

from differently_aws import environment
from differently_aws.environment import Misconfigured
from differently_core.model.record import Table
from tests.support.functions import ENVIRON


def test_a_whole_environment_is_read() -> None:
    told = environment.read({**ENVIRON, "ALLOWED_ORIGINS": "https://a.example  https://b.example", "PATH": "/bin"})
    assert told.tables == {Table.CONFIG: "config-1", Table.STATE: "state-1", Table.LOG: "log-1"}
    assert told.allowed_origins == {"https://a.example", "https://b.example"}
    assert told.endpoint is None


@pytest.mark.parametrize("name", ["AWS_REGION", "CONFIG_TABLE", "STATE_TABLE", "LOG_TABLE", "DIFFERENTLY_VERSION"])
@pytest.mark.parametrize("change", ["missing", "empty"])
def test_a_missing_variable_is_named(name: str, change: str) -> None:
    given = {key: value for key, value in ENVIRON.items() if key != name or change == "empty"}
    with pytest.raises(Misconfigured, match=f"^{name}: "):
        environment.read({**given, **({name: ""} if change == "empty" else {})})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LOG_LEVEL", "canary"),
        ("ADAPTERS_MINIMUM_LEVEL", "canary"),
        ("ALLOWED_ORIGINS", "canary"),
        ("DISPATCH_QUEUE_URL", "canary"),
    ],
)
def test_a_wrong_variable_is_named_without_its_value(name: str, value: str) -> None:
    with pytest.raises(Misconfigured, match=f"^{name}: ") as caught:
        environment.read({**ENVIRON, name: value})
    assert "canary" not in str(caught.value)
