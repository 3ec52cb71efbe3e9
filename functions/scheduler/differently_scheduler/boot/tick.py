"""The function `tick`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from differently_aws.wiring import wire
from differently_scheduler import tick

_wiring = wire("tick", os.environ)


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    return tick.handle(_wiring.core, event, _wiring.messages.reconcile)
