"""The API as each of its functions makes it."""

from __future__ import annotations

import os

from differently_api.app import App
from differently_aws.wiring import wire


def application(function: str) -> App:
    wiring = wire(function, os.environ)
    told = wiring.environment
    return App(wiring.core, wiring.peppers, version=told.version, allowed_origins=told.allowed_origins)
