"""Every route of the API, by resource."""

from __future__ import annotations

from ..route import AnyRoute
from .audit import ROUTES as AUDIT
from .budgets import ROUTES as BUDGETS
from .commands import ROUTES as COMMANDS
from .files import ROUTES as FILES
from .jobs import ROUTES as JOBS
from .keys import ROUTES as KEYS
from .kinds import ROUTES as KINDS
from .moves import ROUTES as MOVES
from .placement import ROUTES as PLACEMENT
from .policies import ROUTES as POLICIES
from .pools import ROUTES as POOLS
from .ports import ROUTES as PORTS
from .project_secrets import ROUTES as PROJECT_SECRETS
from .queue import ROUTES as QUEUE
from .sandboxes import ROUTES as SANDBOXES
from .secrets import ROUTES as SECRETS
from .service import ROUTES as SERVICE
from .snapshots import ROUTES as SNAPSHOTS
from .templates import ROUTES as TEMPLATES
from .tenancy import ROUTES as TENANCY
from .trust import ROUTES as TRUST
from .uploads import ROUTES as UPLOADS
from .usage import ROUTES as USAGE
from .webhooks import ROUTES as WEBHOOKS

ROUTES: tuple[AnyRoute, ...] = (
    *SERVICE,
    *SANDBOXES,
    *MOVES,
    *COMMANDS,
    *JOBS,
    *FILES,
    *UPLOADS,
    *PORTS,
    *SNAPSHOTS,
    *TENANCY,
    *KEYS,
    *POOLS,
    *KINDS,
    *SECRETS,
    *PROJECT_SECRETS,
    *POLICIES,
    *PLACEMENT,
    *TEMPLATES,
    *QUEUE,
    *AUDIT,
    *USAGE,
    *BUDGETS,
    *TRUST,
    *WEBHOOKS,
)
