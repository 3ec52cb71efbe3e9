"""What a backend is asked to start a sandbox from: an image, or one of the backend's own templates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..model.pool import Template


@dataclass(frozen=True)
class Start:
    """`image` None leaves the choice to the backend's template, or to the pool's configuration."""

    template: str
    image: str | None


def start_of(
    name: str, image: str | None, template: Template | None, pool: str, offered: Sequence[str]
) -> Start | None:
    """How the pool starts it; None where it cannot.

    `offered` are the backend's own templates: a pool that has any takes nothing else, and what our template names for
    it is one of them. Every other pool takes an image that the caller names, whatever the template lists; without one,
    a template that lists images runs only where it has one.
    """
    listed = template.images.get(pool) if template is not None else None
    if offered:
        chosen = listed or name
        return Start(chosen, None) if image is None and chosen in offered else None
    if image is not None:
        return Start(name, image)
    if template is not None and template.images and listed is None:
        return None
    return Start(name, listed)
