"""Which route a request is for. Paths match whole and literally: no trailing slash, no empty segment, no other case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from differently_core.errors import InvalidRequest, MethodNotAllowed, NotFound

from .route import AnyRoute

_Shape = tuple[str | None, ...]
"""Segments of a path; None stands for a parameter."""
PATH_SHOWN_MAX = 128
KEY_PREFIX = "dk_"


@dataclass(frozen=True)
class Match:
    route: AnyRoute
    params: Mapping[str, str]


class Router:
    def __init__(self, routes: Sequence[AnyRoute]) -> None:
        self._by_length: dict[int, dict[_Shape, dict[str, AnyRoute]]] = {}
        for route in routes:
            shape = tuple(None if segment.startswith("{") else segment for segment in route.segments)
            methods = self._by_length.setdefault(len(shape), {}).setdefault(shape, {})
            if route.method in methods:
                raise ValueError(f"{route.name} is declared twice")
            methods[route.method] = route

    def match(self, method: str, path: str) -> Match:
        """Raises `NotFound` for an unknown path, `MethodNotAllowed` for a known one without this method."""
        segments = path.removeprefix("/").split("/")
        if any(unquote(segment).lstrip().startswith(KEY_PREFIX) for segment in segments):
            raise InvalidRequest(
                "An API key stands in the path, where logs may keep it. Send it as `Authorization: Bearer dk_…` alone, "
                "and rotate this one.", field="path",
            )  # fmt: skip
        methods = self._methods(segments)
        if methods is None or not path.startswith("/"):
            raise NotFound(f"There is no path {path[:PATH_SHOWN_MAX]!r} in this API; GET /openapi.json lists them.")
        route = methods.get(method)
        if route is None:
            allowed = sorted(methods)
            raise MethodNotAllowed(f"This path takes {' and '.join(allowed)}.", allowed=allowed)
        pairs = zip(segments, route.segments, strict=True)
        values = (unquote(given) for given, known in pairs if known.startswith("{"))
        return Match(route, dict(zip(route.params, values, strict=True)))

    def allowed(self, path: str) -> Sequence[str]:
        """The methods of a path; empty for an unknown one."""
        return sorted(self._methods(path.removeprefix("/").split("/")) or ())

    def _methods(self, segments: Sequence[str]) -> Mapping[str, AnyRoute] | None:
        """A literal segment beats a parameter at the same place."""
        best: tuple[int, Mapping[str, AnyRoute]] | None = None
        for shape, methods in self._by_length.get(len(segments), {}).items():
            pairs = zip(shape, segments, strict=True)
            if all(given == known if known is not None else given != "" for known, given in pairs):
                literal = sum(known is not None for known in shape)
                if best is None or literal > best[0]:
                    best = (literal, methods)
        return best[1] if best is not None else None
