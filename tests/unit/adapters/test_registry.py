"""Kinds, their trust lists, and how a pool's configuration becomes an adapter."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from pydantic import BaseModel, ConfigDict, Field, JsonValue, create_model

from differently_adapters import registry
from differently_adapters.providers.fake import REGISTRATION, FakeAdapter, FakeBackend
from differently_adapters.registry import KINDS, Kind, TrustList, build, load
from differently_adapters.testing import AdapterConformance
from differently_core.contract import (
    SUPPORTED,
    ContractError,
    Need,
    NotOffered,
    Operation,
    Requirements,
    Unsupported,
    effective_features,
    validate,
)
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


class Open(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Changing(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Telling(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    api_key: str


class Unspeakable(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    call: Callable[[], int]


class ListLike(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra={"type": "array"})


class Handmade(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def model_json_schema(cls, *_: object, **__: object) -> dict[str, JsonValue]:
        return {"type": "object", "$defs": {"Here": {}}, "properties": {"region": {"$ref": "#/$defs/There"}}}


def with_schema(extra: dict[str, object]) -> type[BaseModel]:
    """A configuration whose one field is described so."""
    field = Field("", json_schema_extra=extra)  # type: ignore[arg-type]
    return create_model("Odd", __config__=ConfigDict(frozen=True, extra="forbid"), region=(str, field))


def needing(need: object, *fields: str) -> Requirements:
    return Requirements(need, fields)  # type: ignore[arg-type]


DEV = TrustList.DEV_ONLY


@pytest.mark.parametrize(
    ("trust", "changes", "named"),
    [
        (DEV, {"dev_only": False}, "fake: dev_only: is False"),
        (TrustList.ALWAYS_EXTERNAL, {"dev_only": False}, "fake: trust: the kind is always external"),
        (TrustList.OPERATOR_DECLARES, {"dev_only": False, "trust": Trust.PRIVATE}, "fake: trust: the operator"),
        ("nowhere", {}, "fake: trust: stands in no list"),
        (DEV, {"trust": "mine"}, "fake: trust: is not one"),
        (DEV, {"kind": "other"}, "other: kind: is no name"),
        (DEV, {"kind": "Fake"}, "Fake: kind: is no name"),
        (DEV, {"summary": ""}, "fake: summary: is not a sentence"),
        (DEV, {"summary": "Two\nlines."}, "fake: summary: is not a sentence"),
        (DEV, {"limits": ("No full stop",)}, "fake: limits: are not sentences"),
        (DEV, {"limits": "A text."}, "fake: limits: are not sentences"),
        (DEV, {"verification": "surely"}, "fake: verification: is not a level"),
        (DEV, {"requirements": needing(None)}, "fake: requirements.credential: is not decided"),
        (DEV, {"requirements": needing(Need.NONE)}, "fake: requirements.credential: FakeAdapter verifies"),
        (DEV, {"requirements": needing(Need.REQUIRED)}, "fake: requirements.credential_fields: does not go"),
        (DEV, {"requirements": needing(Need.REQUIRED, "no name")}, "fake: requirements.credential_fields: holds"),
        (DEV, {"requirements": needing(Need.OPTIONAL, "a", "a")}, "fake: requirements.credential_fields: holds"),
        (DEV, {"config": Open}, "fake: config: must refuse unknown fields"),
        (DEV, {"config": Changing}, "fake: config: must be frozen"),
        (DEV, {"config": Telling}, "fake: config: api_key is public"),
        (DEV, {"config": Unspeakable}, r"fake: config: has no JSON Schema \(PydanticInvalidForJsonSchema"),
        (DEV, {"config": ListLike}, "fake: config: is not an object"),
        (DEV, {"config": with_schema({"type": "text"})}, "fake: config: config.region has a type"),
        (
            DEV,
            {"config": with_schema({"items": {"$ref": "#/definitions/A"}})},
            r"fake: config: has no JSON Schema \(KeyError",
        ),
        (DEV, {"config": Handmade}, "fake: config: config.region refers to nothing"),
        (DEV, {"config": with_schema({"pattern": "("})}, "fake: config: config.region has a pattern"),
        (DEV, {"config": with_schema({"items": "x"})}, "fake: config: config.region.items is no schema"),
        (DEV, {"config": with_schema({"anyOf": [{"type": "x"}]})}, "fake: config: config.region.anyOf.0 has a type"),
        (DEV, {"config": with_schema({"properties": []})}, "fake: config: config.region. is no schema"),
    ],
)
def test_a_malformed_registration_is_refused_by_the_name_of_its_entry(
    trust: TrustList, changes: dict[str, object], named: str
) -> None:
    with pytest.raises(ContractError, match=f"^{named}"):
        registry._check_registration("fake", trust, Kind(FakeAdapter, replace(REGISTRATION, **changes)))  # type: ignore[arg-type]


def test_a_registration_under_the_name_of_another_kind_is_refused() -> None:
    with pytest.raises(ContractError, match=r"^devhost: kind: is registered as fake"):
        registry._check_registration("devhost", DEV, Kind(FakeAdapter, REGISTRATION))


@pytest.mark.parametrize("kind", KINDS)
def test_the_configuration_of_every_kind_is_published_as_json_schema(kind: str) -> None:
    schema = load(kind).registration.schema()
    Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    ("operation", "support", "why"),
    [
        (Operation.STOP, None, "does not declare stop"),
        (Operation.EXEC, Unsupported("no_exec"), "required operation exec"),
        (Operation.STOP, Unsupported("No stop!"), "without a reason code"),
        (Operation.STOP, "yes", "as 'yes'"),
        (Operation.STOP, Unsupported("no_stop"), "declare together: start, stop"),
        (Operation.JOB_STATUS, Unsupported("no_jobs"), "declare together: job_output"),
        ("fly", SUPPORTED, "unknown operations: fly"),
    ],
)
def test_a_malformed_declaration_is_refused_by_the_name_of_its_operation(
    operation: Operation, support: object, why: str
) -> None:
    declared: dict[object, object] = {known: told for known, told in FakeAdapter.operations.items()}  # noqa: C416
    declared[operation] = support
    if support is None:
        del declared[operation]
    with pytest.raises(ContractError, match=why):
        validate(type("Odd", (FakeAdapter,), {"operations": declared}))


@pytest.mark.parametrize(
    ("missing", "dependent"),
    [
        ((Operation.PAUSE, Operation.RESUME), Operation.CALL_OFF),
        ((Operation.PORT_EXPOSE,), Operation.PORT_REVOKE),
        (tuple(operation for operation in Operation if operation.startswith("job_") and operation != "job_interrupt"),
         Operation.JOB_INTERRUPT),
    ],
)  # fmt: skip
def test_an_operation_that_means_nothing_by_itself_is_refused(
    missing: tuple[Operation, ...], dependent: Operation
) -> None:
    declared = {**FakeAdapter.operations, **dict.fromkeys(missing, Unsupported("not_here"))}
    with pytest.raises(ContractError, match=f"declares {dependent} without"):
        validate(type("Odd", (FakeAdapter,), {"operations": declared}))


def test_a_declaration_without_its_method_is_refused() -> None:
    with pytest.raises(ContractError, match="has no method renew"):
        validate(type("Odd", (FakeAdapter,), {"renew": None}))


def test_an_operation_that_is_declared_and_not_written_is_refused() -> None:
    """An adapter inherits a refusal for all that it does not offer; declared supported, it would refuse in use."""
    with pytest.raises(ContractError, match="declares renew supported and does not implement it"):
        validate(type("Odd", (FakeAdapter,), {"renew": NotOffered.renew}))


def test_a_pool_may_only_advertise_what_its_adapter_declares() -> None:
    declared = {**FakeAdapter.operations, **dict.fromkeys((Operation.STOP, Operation.START), Unsupported("no_stop"))}
    adapter = FakeAdapter.over(FakeBackend(VirtualClock()))
    adapter.operations = declared  # type: ignore[misc]
    told = effective_features(adapter, frozenset({"exec", "files", "lifecycle.stop-start", "ssh", "made-up"}))
    assert told == {"exec", "files", "ssh"}


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


@pytest.mark.parametrize(
    ("kind", "config", "rule"),
    [
        ("opensandbox", {}, "is required"),
        ("devhost", {"root": 7}, "must be a path"),
        ("opensandbox", {"apiUrl": "https://a.example", "runtime": 1}, "must be "),
        ("fake", {"no": 1}, "there is no such setting; leave it out"),
    ],
)
def test_a_refused_configuration_is_told_without_the_words_of_a_library(
    kind: str, config: dict[str, JsonValue], rule: str
) -> None:
    """Operators read that an input "is not a valid path for <class 'pathlib.Path'>", and of "A opensandbox pool"."""
    with pytest.raises(InvalidRequest) as refused:
        registry.parse_config(kind, config)
    assert refused.value.message.startswith(f"A pool of kind {kind} cannot use this configuration: config.")
    assert rule in refused.value.message
    assert not {"Input", "class", "Extra inputs"} & set(refused.value.message.replace("<", " ").split())
