"""How a server of ours names instances and snapshots: with their owner, because version 1 clients do not send it.

The contract checks the owner on every call, and a version 1 call names nothing but the ref. A ref is opaque to whoever
holds it, so it carries the owner along. A newer client sends the owner as well, and then both have to agree.
"""

from __future__ import annotations

from typing import Final

from differently_core.contract import Owner

_SEPARATOR: Final = "~"


def with_owner(ref: str, owner: Owner) -> str:
    return _SEPARATOR.join((ref, owner.sandbox, owner.installation))


def without_owner(text: str) -> tuple[str, Owner | None]:
    """The backend's own ref, and the owner that the text carries, if it does."""
    parts = text.rsplit(_SEPARATOR, 2)
    if len(parts) != 3 or not all(parts):
        return text, None
    ref, sandbox, installation = parts
    return ref, Owner(installation, sandbox)
