"""The function `control`."""

from __future__ import annotations

from .application import application

handler = application("control").control
