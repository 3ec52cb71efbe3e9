"""The function `deliver`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from differently_aws.wiring import wire
from differently_scheduler import deliver

_wiring = wire("deliver", os.environ)


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    return deliver.handle(_wiring.core, event)
