"""Cursors: where a list goes on, sealed so that a caller can neither read meaning into one nor make one up.

A cursor is bound to the list it came from (who asked, with which filters); sent to another list it is refused.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence

from ..errors import InvalidRequest
from .core import Core

CURSOR_MAX = 1024


def seal(core: Core, bound_to: Sequence[object], position: str) -> str:
    """`bound_to` is everything that must be the same when the cursor comes back; it must be JSON."""
    text = f"{_signature(core, bound_to, position)}{position}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def unseal(core: Core, bound_to: Sequence[object], cursor: str) -> str:
    """The position; raises `InvalidRequest` for a cursor that was changed, made up or taken from another list."""
    try:
        text = base64.b64decode(cursor[:CURSOR_MAX] + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (ValueError, UnicodeError):
        text = ""
    signature, position = text[:_SIGNATURE_CHARACTERS], text[_SIGNATURE_CHARACTERS:]
    if not hmac.compare_digest(signature.encode(), _signature(core, bound_to, position).encode()):
        raise InvalidRequest(
            "cursor does not belong to this list; send the nextCursor of a page with the same filters.", field="cursor"
        )
    return position


_SIGNATURE_CHARACTERS = 32


def _signature(core: Core, bound_to: Sequence[object], position: str) -> str:
    key = core.catalog.installation().id_salt.encode()
    message = json.dumps(["cursor", *bound_to, position]).encode()
    return hmac.new(key, message, hashlib.sha256).hexdigest()[:_SIGNATURE_CHARACTERS]
