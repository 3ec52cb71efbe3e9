"""The function `projector`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from differently_aws.wiring import wire
from differently_scheduler import projector

_wiring = wire("projector", os.environ)


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    return projector.handle(_wiring.core, event, _wiring.bus.publish if _wiring.bus is not None else None)
