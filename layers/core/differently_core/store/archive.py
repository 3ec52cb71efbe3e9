"""Where roots are kept outside of the tables: a bucket whose objects cannot be changed or removed for a time."""

from __future__ import annotations

from typing import Protocol

from ..errors import DifferentlyError


class ArchiveUnavailable(DifferentlyError):
    """The archive did not take it; it may be kept or not."""

    code = "provider_unavailable"


class Archive(Protocol):
    def keep(self, name: str, text: str) -> None:
        """Keep a text for good; one that is there under this name stays as it is. Raises `ArchiveUnavailable`."""
        ...


class NoArchive:
    """The log table alone keeps roots."""

    def keep(self, name: str, text: str) -> None:
        pass
