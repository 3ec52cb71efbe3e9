"""What a sandbox may reach: set on its instance before anything runs in it, also when it wakes."""

from __future__ import annotations

import logging

from ..contract import Adapter, Instance, Target
from ..errors import BackendError, NotFound
from ..model.sandbox import Sandbox
from ..policy import egress
from .backends import calling
from .core import Core

log = logging.getLogger(__name__)


def confined(core: Core, adapter: Adapter, sandbox: Sandbox, instance: Instance) -> str | None:
    """As `confined_at`, of the instance that was seen."""
    return confined_at(core, adapter, sandbox, instance.ref)


def confined_at(core: Core, adapter: Adapter, sandbox: Sandbox, ref: str) -> str | None:
    """Set what it may reach, and tell the evidence that it is in force; None while that is not known.

    Raises `InvalidRequest` or `UnsupportedOperation` for rules that the backend can never enforce.
    """
    limit = sandbox.egress_rules
    if limit is None:
        return ""
    target = Target(core.owner(sandbox.id), ref)
    try:
        calling(adapter, lambda: adapter.egress_set(target, egress.rules_of(limit)))
    except (BackendError, NotFound) as error:
        log.info("egress not confirmed", extra={"sandbox": sandbox.id, "error": error.message})
        return None
    return "; egress rules in force"
