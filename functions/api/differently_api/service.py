"""What handlers are given besides the call itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from differently_core.operations.core import Core
from differently_core.operations.keys import Peppers


@dataclass(frozen=True)
class Service:
    core: Core
    peppers: Peppers = field(repr=False)
    version: str
    document: Callable[[], str] = field(repr=False)
    """The OpenAPI document as JSON, made when it is first asked for."""
