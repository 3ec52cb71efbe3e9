"""The function `dispatch`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from differently_aws.wiring import wire
from differently_scheduler import dispatch

_wiring = wire("dispatch", os.environ)


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    return dispatch.handle(_wiring.core, event)
