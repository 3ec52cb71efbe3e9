"""Names carry all that Boat keeps of us: whose a machine is, and which capture of which sandbox a saved snapshot is."""

from __future__ import annotations

from typing import Final

from differently_core.contract import Owner

from ...names import digest

SNAPSHOT_NAME: Final = r"^[a-z0-9][a-z0-9-]{0,62}$"
SNAPSHOT_PREFIX: Final = "dfy-"
_PREFIX: Final = "differently"


def machine_name(owner: Owner) -> str:
    return f"{_PREFIX}/{owner.installation}/{owner.sandbox}"


def owner_in(name: str) -> Owner | None:
    """None for a name that is not one of ours."""
    match name.split("/"):
        case [prefix, installation, sandbox] if prefix == _PREFIX and installation and sandbox:
            return Owner(installation, sandbox)
        case _:
            return None


def of_installation(installation: str) -> str:
    """What the names of all its snapshots begin with."""
    return f"{SNAPSHOT_PREFIX}{digest(installation)}-"


def of_sandbox(owner: Owner) -> str:
    return f"{of_installation(owner.installation)}{digest(owner.installation, owner.sandbox)}-"


def snapshot_name(owner: Owner, operation: str) -> str:
    """Saving under a name again replaces what it held, so each operation has its own."""
    return f"{of_sandbox(owner)}{digest(owner.installation, owner.sandbox, operation)}"
