"""Signatures of webhooks, as Standard Webhooks has them: any of its libraries proves ours.

Signed is `id.timestamp.body` with HMAC-SHA256; while a secret is being replaced both sign, parted by a blank
(standardwebhooks.com, specification of October 2023).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime

from ..model.webhook import SigningSecret, Webhook
from .core import Core

PREFIX = "whsec_"
VERSION = "v1"


def fresh(core: Core) -> str:
    """A new secret in its written form: 32 bytes."""
    return PREFIX + base64.b64encode(hashlib.sha256(core.ids.secret().encode()).digest()).decode()


def seal(core: Core, webhook: str, secret: str) -> SigningSecret:
    """Raises `SealingUnavailable`."""
    revision = core.ids.new("rev")
    return SigningSecret(revision=revision, sealed=core.sealer.seal(secret, _context(core, webhook, revision)))


def opened(core: Core, webhook: Webhook, now: datetime) -> list[str]:
    """The secrets that sign at this moment, newest first. Raises `Unsealable` or `SealingUnavailable`."""
    return [
        core.sealer.unseal(secret.sealed, _context(core, webhook.id, secret.revision))
        for secret in webhook.secrets
        if secret.until is None or now < secret.until
    ]


def headers(secrets: Sequence[str], identity: str, at: datetime, body: bytes) -> dict[str, str]:
    seconds = int(at.timestamp())
    signatures = " ".join(sign(secret, identity, seconds, body) for secret in secrets)
    return {"webhook-id": identity, "webhook-timestamp": str(seconds), "webhook-signature": signatures}


def sign(secret: str, identity: str, seconds: int, body: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    digest = hmac.new(key, f"{identity}.{seconds}.".encode() + body, hashlib.sha256).digest()
    return f"{VERSION},{base64.b64encode(digest).decode()}"


def _context(core: Core, webhook: str, revision: str) -> dict[str, str]:
    installation = core.catalog.installation().id
    return {"installation": installation, "secret": f"webhook:{webhook}", "field": "signing", "revision": revision}
