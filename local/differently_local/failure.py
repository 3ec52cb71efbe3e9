"""Why a start cannot go on, in words for the person at the terminal."""

from __future__ import annotations


class StartFailure(Exception):
    """Its text says what is wrong and what to do; no traceback is shown with it."""


class Interrupted(Exception):
    """A signal asked for the end while the start was still under way."""
