"""The function `worker`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from differently_aws.wiring import wire
from differently_scheduler import worker

_wiring = wire("worker", os.environ)


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any] | None:
    return worker.handle(_wiring.core, event, _wiring.messages.wait)
