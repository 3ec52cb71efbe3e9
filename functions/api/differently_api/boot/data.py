"""The function `data`. `stream` is what our own runtime serves; `handler` is for Python's managed runtime, which can
only send whole answers: with it nothing arrives before its end, and what takes longer than the gateway waits is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from differently_api.proxy import whole

from .application import application

stream = application("data").data


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    answer = stream(event, context)
    return whole(answer) if isinstance(answer["body"], Iterator) else answer
