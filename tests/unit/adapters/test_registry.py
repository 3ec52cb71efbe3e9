"""Kinds, their trust lists, and how a pool's configuration becomes an adapter."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from differently_adapters import registry
from differently_adapters.providers.fake import REGISTRATION, FakeAdapter
from differently_adapters.registry import KINDS, Kind, TrustList, build, load
from differently_adapters.testing import AdapterConformance
from differently_core.contract import ContractError, Operation
from differently_core.errors import InvalidRequest
from differently_core.model.pool import Trust
from differently_core.runtime.clock import VirtualClock

CONFORMANCE = Path(__file__).parents[2] / "conformance" / "adapters"


def make(kind: str, config: dict[str, object], *, dev: bool = True) -> object:
    return build(kind, config, pool="p", installation="inst_x", clock=VirtualClock(), dev=dev)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_loads_and_agrees_with_its_trust_list(kind: str) -> None:
    loaded = load(kind)
    assert KINDS[kind].trust in TrustList
    assert loaded.registration.summary
    assert loaded.registration.schema()["additionalProperties"] is False
    if KINDS[kind].trust is not TrustList.DEV_ONLY:
        assert loaded.registration.trust is not Trust.PRIVATE


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_conformance_class(kind: str) -> None:
    file = CONFORMANCE / f"test_{kind.replace('-', '_')}.py"
    assert file.exists(), f"{kind} has no conformance test"
    spec = importlib.util.spec_from_file_location(f"conformance_of_{kind}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = [
        value
        for name, value in vars(module).items()
        if name.startswith("Test") and isinstance(value, type) and issubclass(value, AdapterConformance)
    ]
    assert kind in {value.kind for value in found}
    for value in found:
        changed = {
            name for base in value.__mro__[:-1] for name in vars(base) if _is_ours(base) and name.startswith("test")
        }
        assert not changed, f"{value.__name__} changes tests of the suite: {changed}"


def _is_ours(base: type) -> bool:
    return not base.__module__.startswith("differently_adapters.testing")


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match=r"known kinds: .*devhost.*fake") as refused:
        load("cloud9")
    assert refused.value.details["field"] == "adapter"


def test_an_unknown_field_is_named_and_its_value_is_not() -> None:
    with pytest.raises(InvalidRequest) as refused:
        make("devhost", {"root": "/srv/x", "apiKey": "canary-123"})
    assert refused.value.details["field"] == "config.apiKey"
    assert "canary" not in f"{refused.value!r} {refused.value.details} {refused.value.__context__!r}"


@pytest.mark.parametrize(
    ("config", "field"),
    [({}, "config.root"), ({"root": "relative"}, "config.root"), ({"root": "/x", "path": ""}, "config.path")],
)
def test_a_wrong_field_is_named(config: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidRequest, match=field):
        make("devhost", config)


@pytest.mark.parametrize("kind", [kind for kind, row in KINDS.items() if row.trust is TrustList.DEV_ONLY])
def test_a_kind_without_isolation_is_for_development_only(kind: str) -> None:
    with pytest.raises(InvalidRequest, match="development only"):
        make(kind, {}, dev=False)


def test_pools_of_one_installation_share_a_named_fake_backend() -> None:
    one, two, other = (make("fake", {"backend": name}) for name in ("shared-x", "shared-x", "shared-y"))
    assert isinstance(one, FakeAdapter)
    assert isinstance(two, FakeAdapter)
    assert isinstance(other, FakeAdapter)
    assert one.backend is two.backend
    assert one.backend is not other.backend


class Lax(BaseModel):
    model_config = ConfigDict(extra="ignore")


@pytest.mark.parametrize(
    ("trust", "registration", "why"),
    [
        (TrustList.DEV_ONLY, replace(REGISTRATION, dev_only=False), "dev_only=False"),
        (TrustList.ALWAYS_EXTERNAL, replace(REGISTRATION, dev_only=False), "always external"),
        (TrustList.OPERATOR_DECLARES, replace(REGISTRATION, dev_only=False, trust=Trust.PRIVATE), "from the operator"),
        (TrustList.DEV_ONLY, replace(REGISTRATION, kind="other"), "registered as other"),
        (TrustList.DEV_ONLY, replace(REGISTRATION, config=Lax), "unknown fields"),
    ],
)
def test_a_registration_that_contradicts_its_row_is_refused(trust: TrustList, registration: object, why: str) -> None:
    with pytest.raises(ContractError, match=why):
        registry._check_registration("fake", trust, Kind(FakeAdapter, registration))  # type: ignore[arg-type]


def test_importing_the_registry_loads_no_provider() -> None:
    script = (
        "import sys, differently_adapters.registry\n"
        "print([m for m in sys.modules if m.startswith(('differently_adapters.providers', 'httpx', 'subprocess'))])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout == "[]\n"


def test_every_operation_is_declared_by_every_kind() -> None:
    for kind in KINDS:
        assert set(load(kind).adapter.operations) == set(Operation)
