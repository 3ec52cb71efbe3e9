"""The function `reconcile`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from differently_aws.wiring import wire
from differently_reconciler import reconcile

_wiring = wire("reconcile", os.environ)


def handler(event: Mapping[str, Any], context: object) -> None:
    reconcile.handle(_wiring.core, event)
