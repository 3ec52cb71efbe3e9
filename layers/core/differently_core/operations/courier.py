"""Who carries a webhook's requests: the seam between what is decided here and what speaks HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ..errors import ProviderUnavailable
from ..model.webhook import Failure, Receipt


class Courier(Protocol):
    """Safe to share between threads."""

    def check(self, url: str) -> None:
        """Raises `InvalidRequest` for a URL that nothing is ever sent to, without any I/O."""
        ...

    def post(self, url: str, headers: Mapping[str, str], body: bytes, seconds: float) -> Receipt:
        """Never raises, never takes longer, and tells nothing of the answer but its status."""
        ...


class NoCourier:
    """For processes that send no webhooks and make none."""

    def check(self, url: str) -> None:
        raise ProviderUnavailable("This installation sends no webhooks.", settled=True)

    def post(self, url: str, headers: Mapping[str, str], body: bytes, seconds: float) -> Receipt:
        return Receipt(failure=Failure.UNREACHABLE)
