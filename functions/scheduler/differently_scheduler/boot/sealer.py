"""The function `sealer`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from differently_aws.wiring import wire
from differently_scheduler import sealer

_wiring = wire("sealer", os.environ)


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    return sealer.handle(_wiring.core, event)
