"""Pools, templates, policies and quotas as a configuration file declares them: the bodies of the API's own routes.

Each is checked as the API would check it, without a store, so a file that cannot be used is refused before anything is
deployed. `differently_core.operations.declaring` brings them into an installation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from differently_adapters.registry import parse_config
from differently_core.contract import parse_reference
from differently_core.errors import DifferentlyError, InvalidRequest, NotFound
from differently_core.model.declaration import Declarable
from differently_core.model.policy import GLOBAL, Policy
from differently_core.model.pool import POOL_NAME_PATTERN, Pool, Template
from differently_core.model.quota import Limits
from differently_core.operations import policies, pool_changes, pools, starting, tenants
from differently_core.operations.core import Caller, Core
from differently_core.operations.declaring import Declared, Found, Shape
from differently_core.operations.requests import NAME_PATTERN
from differently_core.runtime.ids import OrgId, ProjectId

from .routes.policies import PolicyBody
from .routes.pools import CreatePool, pool_of
from .routes.templates import PutTemplate, template_of
from .routes.tenancy import Quota

_UNDATED: Final = datetime.min.replace(tzinfo=UTC)
"""When something was made is no part of what is declared."""
_TENANT: Final = r"(org|proj)_[0-7][0-9A-HJKMNP-TV-Z]{25}"
PoolKey = Annotated[str, Field(pattern=POOL_NAME_PATTERN)]
TemplateKey = Annotated[str, Field(pattern=NAME_PATTERN)]
PolicyKey = Annotated[str, Field(pattern=rf"^({GLOBAL}|{_TENANT})$")]
QuotaKey = Annotated[str, Field(pattern=rf"^{_TENANT}$")]


class Declarations(BaseModel):
    """The tables of the file by name; what is in none of them is another's to read."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    pools: Mapping[PoolKey, CreatePool] = {}
    """Pools by name, `[pools.NAME]`: the fields of `POST /v1/admin/pools`. Declared ones are reconciled at each
    deployment; what was made by the API is left alone. Adapter and trust cannot be changed under one name."""
    templates: Mapping[TemplateKey, PutTemplate] = {}
    """Templates by name, `[templates.NAME]`: the fields of `PUT /v1/templates/{name}`."""
    policies: Mapping[PolicyKey, PolicyBody] = {}
    """Policies by scope, `[policies.global]` or an id of an organization or project: the `rules` of
    `PUT /v1/policies/{scope}`."""
    quotas: Mapping[QuotaKey, Quota] = {}
    """Quotas by the id of an organization or project, `[quotas.org_…]`: the fields of `PUT /v1/orgs/{org}/quota`."""

    @field_validator("pools", mode="before")
    @classmethod
    def _named(cls, given: object) -> object:
        """A pool is named by its table."""
        if not isinstance(given, Mapping):
            return given
        return {
            name: {**body, "name": name} if isinstance(body, Mapping) and "name" not in body else body
            for name, body in given.items()
        }

    @field_validator("pools")
    @classmethod
    def _usable(cls, given: Mapping[str, CreatePool]) -> Mapping[str, CreatePool]:
        for name, pool in given.items():
            try:
                if pool.name != name:
                    raise InvalidRequest("name: the table names the pool; leave it out.")
                pool_of(pool, _UNDATED)
                parse_config(pool.adapter, pool.config)
                if pool.credential is not None:
                    parse_reference(pool.credential)
            except DifferentlyError as error:
                raise ValueError(f"{name}: {error.message}") from None
        return given

    @field_validator("templates")
    @classmethod
    def _unversioned(cls, given: Mapping[str, PutTemplate]) -> Mapping[str, PutTemplate]:
        for name, template in given.items():
            if template.version is not None:
                raise ValueError(f"{name}.version: a declaration has none; leave it out")
        return given

    def things(self) -> Iterator[Declared]:
        """Pools first: templates and policies name them."""
        yield from (DeclaredPool(name, body) for name, body in self.pools.items())
        yield from (DeclaredTemplate(name, body) for name, body in self.templates.items())
        yield from (DeclaredPolicy(scope, body) for scope, body in self.policies.items())
        yield from (DeclaredQuota(owner, body) for owner, body in self.quotas.items())


class Undeclarable(Exception):
    """The declarations cannot be used; the text names each key and what is wrong with it."""


def read(given: Mapping[str, Any]) -> Declarations:
    """The declarations among the keys of a whole file; raises `Undeclarable`."""
    try:
        return Declarations.model_validate(given)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
    said = (f"{'.'.join(map(str, entry['loc']))}: {entry['msg'].removeprefix('Value error, ')}" for entry in found)
    raise Undeclarable("; ".join(said))


@dataclass(frozen=True)
class DeclaredPool:
    name: str
    body: CreatePool
    what: Declarable = Declarable.POOL
    fixed: tuple[str, ...] = ("adapter", "trust")
    SHAPE: ClassVar = {
        "adapter", "trust", "region", "max_concurrency", "max_retained", "cost_model", "config", "credential",
    }  # fmt: skip

    def wanted(self) -> Shape:
        return self._shape(pool_of(self.body, _UNDATED))

    def find(self, core: Core) -> Found | None:
        found = core.store.get(Pool, Pool.key_of(self.name))
        return Found(self._shape(found)) if found is not None else None

    def create(self, core: Core, caller: Caller) -> None:
        pools.register(core, caller, pool_of(self.body, core.clock.now()))

    def change(self, core: Core, caller: Caller) -> None:
        """Without a trial at the backend, which whoever deploys may not reach: the next probe tells."""
        wanted = pool_of(self.body, core.clock.now())
        changes = {field: getattr(wanted, field) for field in self.SHAPE - set(self.fixed)}
        pool_changes.change(core, caller, self.name, changes, verify=False)

    def _shape(self, pool: Pool) -> Shape:
        return pool.model_dump(mode="json", include=self.SHAPE)


@dataclass(frozen=True)
class DeclaredTemplate:
    name: str
    body: PutTemplate
    what: Declarable = Declarable.TEMPLATE
    fixed: tuple[str, ...] = ()

    def wanted(self) -> Shape:
        return self._shape(template_of(self.name, self.body, _UNDATED))

    def find(self, core: Core) -> Found | None:
        found = core.store.get(Template, Template.key_of(self.name))
        if found is None:
            return None
        return Found(self._shape(found), untouched=self.name == starting.DEFAULT_TEMPLATE and found.version == 1)

    def create(self, core: Core, caller: Caller) -> None:
        starting.replace(core, caller, template_of(self.name, self.body, core.clock.now()), 0)

    def change(self, core: Core, caller: Caller) -> None:
        standing = starting.find(core, Template, self.name).version
        starting.replace(core, caller, template_of(self.name, self.body, core.clock.now()), standing)

    @staticmethod
    def _shape(template: Template) -> Shape:
        return template.model_dump(mode="json", include={"images", "cpu_millis", "memory_mib", "disk_gib"})


@dataclass(frozen=True)
class DeclaredPolicy:
    name: str
    body: PolicyBody
    what: Declarable = Declarable.POLICY
    fixed: tuple[str, ...] = ()

    def wanted(self) -> Shape:
        return self.body.rules().model_dump(mode="json")

    def find(self, core: Core) -> Found | None:
        found = self._standing(core)
        if found is None:
            return None
        return Found(found.rules.model_dump(mode="json"), untouched=found.updated_at is None)

    def create(self, core: Core, caller: Caller) -> None:
        policies.replace(core, caller, self.name, self.body.rules(), 0)

    def change(self, core: Core, caller: Caller) -> None:
        found = self._standing(core)
        policies.replace(core, caller, self.name, self.body.rules(), found.version if found is not None else 0)

    def _standing(self, core: Core) -> Policy | None:
        """None also for an organization that is not there, which the write then refuses by name."""
        try:
            return policies.find(core, self.name)
        except NotFound:
            return None


@dataclass(frozen=True)
class DeclaredQuota:
    name: str
    body: Quota
    what: Declarable = Declarable.QUOTA
    fixed: tuple[str, ...] = ()

    def wanted(self) -> Shape:
        return self.body.limits().model_dump(mode="json")

    def find(self, core: Core) -> Found | None:
        org, project = self._owner(core)
        found = tenants.org_quota(core, org) if project is None else tenants.project_quota(core, org, project)
        limits = found[0]
        return Found(limits.model_dump(mode="json"), untouched=limits == Limits())

    def create(self, core: Core, caller: Caller) -> None:
        """Whoever has a quota has had one from the beginning."""
        self.change(core, caller)

    def change(self, core: Core, caller: Caller) -> None:
        org, project = self._owner(core)
        tenants.set_quota(core, caller, org, project, self.body.limits())

    def _owner(self, core: Core) -> tuple[OrgId, ProjectId | None]:
        if self.name.startswith("org_"):
            return OrgId(self.name), None
        return core.catalog.org_of(ProjectId(self.name)), ProjectId(self.name)
