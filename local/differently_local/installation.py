"""What the first start makes and every start finds: installation, organization, project, pool, and the two keys.

The store keeps only hashes of keys, so the keys themselves lie in `dev.json`. Those that do not prove any more, because
the state or the pepper is gone, are replaced and the person is told.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from differently_api import declared
from differently_core.errors import DifferentlyError, Unauthenticated
from differently_core.model.pool import Pool, Trust
from differently_core.model.tenancy import OPEN, ApiKey, KeyScope, Project
from differently_core.operations import keys, pools, tenants
from differently_core.operations.core import Core, system
from differently_core.operations.declaring import Verdict, reconcile
from differently_core.runtime.ids import IdSource, OrgId, ProjectId
from differently_core.store.ports import Committed, Equals, Put

from . import private_files
from .failure import StartFailure

LOCAL = system("local")
NAME = "default"
POOL = "devhost"
POOL_MAX_CONCURRENCY = 200
LIST_MAX = 100


@dataclass(frozen=True)
class Access:
    """What a person needs to call the API."""

    url: str
    tenant_key: str
    operator_key: str
    project: str

    def document(self) -> dict[str, str]:
        return {
            "url": self.url, "tenantKey": self.tenant_key, "operatorKey": self.operator_key, "projectId": self.project,
        }  # fmt: skip


def pepper(data_dir: Path, ids: IdSource) -> keys.Peppers:
    """The key of the key hashes, made once."""
    path = data_dir / "pepper"
    if not path.exists():
        private_files.write(path, ids.secret() + "\n")
    secret = path.read_text(encoding="utf-8").strip().encode()
    try:
        return keys.Peppers({1: secret})
    except ValueError as error:
        raise StartFailure(f"{path} is damaged: {error}. Remove it to make a new one; keys made so far end.") from None


def prepare(core: Core, peppers: keys.Peppers, data_dir: Path, url: str, say: Callable[[str], None]) -> Access:
    """Make what is missing and write `dev.json`."""
    tenants.bootstrap(core)
    project = _project(core)
    _pool(core, data_dir / "sandboxes")
    path = data_dir / "dev.json"
    known = private_files.read_json(path)
    tenant = _proved(core, peppers, known.get("tenantKey"), KeyScope.TENANT, project)
    operator = _proved(core, peppers, known.get("operatorKey"), KeyScope.OPERATOR, None)
    if known and (tenant is None or operator is None):
        say("the keys of the last run are not valid any more (state or pepper was removed); made new ones")
    if tenant is None:
        tenant = keys.create_key(
            core, peppers, LOCAL, "first tenant key", KeyScope.TENANT, org=project.org, project=project.id
        ).token
    if operator is None:
        operator = tenants.first_operator_key(core, peppers).token
    access = Access(url, tenant, operator, project.id)
    private_files.write_json(path, access.document())
    return access


def declare(core: Core, path: Path, say: Callable[[str], None]) -> None:
    """Bring in what the file declares, as a deployment does at its end. Says what changed and what could not be."""
    try:
        things = list(declared.read(tomllib.loads(path.read_text(encoding="utf-8"))).things())
    except OSError as error:
        raise StartFailure(f"DIFFERENTLY_CONFIG: {path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StartFailure(f"DIFFERENTLY_CONFIG: {path} is not TOML: {error}.") from None
    except declared.Undeclarable as error:
        raise StartFailure(f"DIFFERENTLY_CONFIG: {path}: {error}.") from None
    for outcome in reconcile(core, things):
        if outcome.verdict is not Verdict.SAME:
            say(str(outcome))


def _project(core: Core) -> Project:
    """The first project named `default` of the first organization of that name."""
    orgs, _ = tenants.list_orgs(core, None, LIST_MAX)
    org = next((entry.id for entry in orgs if entry.name == NAME and entry.state in OPEN), None)
    if org is None:
        org = tenants.create_org(core, LOCAL, NAME).id
    found, _ = tenants.list_projects(core, OrgId(org), None, LIST_MAX)
    project = next((entry for entry in found if entry.name == NAME and entry.state in OPEN), None)
    return project or tenants.create_project(core, LOCAL, OrgId(org), NAME)


def _pool(core: Core, root: Path) -> None:
    """The pool of this machine. Its root follows the data directory when that was moved."""
    config = {"root": str(root)}
    found = core.catalog.pools().pools.get(POOL)
    if found is None or found.config.get("root") != config["root"]:
        # Never one that was there and is missing: what ran in it is not to be taken for lost.
        private_files.make_directory(root)
    if found is None:
        pool = Pool(
            name=POOL, adapter="devhost", trust=Trust.PRIVATE, max_concurrency=POOL_MAX_CONCURRENCY, config=config,
            created_at=core.clock.now(),
        )  # fmt: skip
        pools.register(core, LOCAL, pool)
    elif found.adapter == "devhost" and found.config.get("root") != config["root"]:
        moved = found.with_(config={**found.config, **config}, version=found.version + 1)
        if isinstance(core.commit([Put(moved, (Equals("version", found.version),), "pool")]), Committed):
            core.catalog.forget()


def _proved(
    core: Core, peppers: keys.Peppers, token: object, scope: KeyScope, project: Project | None
) -> str | None:  # fmt: skip
    """The token, if the store still knows it for what it was."""
    if not isinstance(token, str):
        return None
    try:
        key: ApiKey = keys.prove(core, peppers, token)
    except Unauthenticated:
        return None
    except DifferentlyError as error:
        raise StartFailure(f"The store does not answer: {error.message}") from error
    wanted: ProjectId | None = project.id if project is not None else None
    return token if key.scope is scope and key.project == wanted else None
