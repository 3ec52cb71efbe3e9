"""The function `admin`."""

from __future__ import annotations

from .application import application

handler = application("admin").admin
