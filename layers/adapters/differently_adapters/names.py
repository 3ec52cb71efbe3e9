"""Names for what is ours at a backend that tells things apart by names: unique, and of characters that all permit."""

from __future__ import annotations

import hashlib
from typing import Final

from differently_core.contract import Owner

DIGEST_CHARACTERS: Final = 16
_READABLE_CHARACTERS: Final = 28


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:DIGEST_CHARACTERS]


def sandbox_name(owner: Owner) -> str:
    """At most 49 characters. A name is found by it and proves nothing: who owns it stands on the instance."""
    readable = "".join(char for char in owner.sandbox.lower() if char.isascii() and char.isalnum())
    return f"dfy-{readable[:_READABLE_CHARACTERS]}-{digest(owner.installation, owner.sandbox)}"
