"""What a devhost pool is told."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

PATH_DEFAULT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class DevhostConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    root: Path
    """Absolute directory with one directory for each installation. It must be there: a missing one is an outage."""
    path: Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")] = PATH_DEFAULT
    """`PATH` of every command; the control plane's own is not handed on."""

    @field_validator("root")
    @classmethod
    def _absolute(cls, root: Path) -> Path:
        if not root.is_absolute():
            raise ValueError("must be an absolute path")
        if "\0" in str(root):
            raise ValueError("must not contain a NUL character")
        return root
