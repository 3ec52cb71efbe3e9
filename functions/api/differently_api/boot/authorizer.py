"""The authorizer: proves a key. It loads no route, because a cold one delays somebody's first call."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from differently_api.auth import authorize
from differently_aws.wiring import wire

_wiring = wire("authorizer", os.environ)


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    return authorize(_wiring.core, _wiring.peppers, event)
