"""execd, OpenSandbox's agent inside a sandbox: commands, their output byte for byte, and files.

It belongs to no provider: whoever can reach an execd over HTTP has commands and files.
"""

from __future__ import annotations

from .client import PORT, Execd, LineEndings
from .files import Files
from .operations import ThroughExecd
from .refusals import explain
from .scripts import Place

__all__ = ["PORT", "Execd", "Files", "LineEndings", "Place", "ThroughExecd", "explain"]
