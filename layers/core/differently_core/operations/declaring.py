"""What a deployment declares, brought into the installation: again at each deployment, twice without harm.

A mark tells what came from the configuration. What has none was made by the API and is left alone; what has one and is
not declared any more is left as it is too, and belongs to the API from then on. Nothing is ever deleted. The mark is
written after what it marks, so a run that dies in between is put right by the next one, which finds what it wanted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from ..errors import DifferentlyError
from ..model.declaration import Declarable, Declaration
from ..store.ports import Delete, Put
from .core import Caller, Core, system

DEPLOYMENT = system("deployment")
Shape = Mapping[str, Any]
"""What the configuration decides of one thing, as JSON."""


class Verdict(StrEnum):
    CREATE = "create"
    CHANGE = "change"
    SAME = "same"
    TAKE = "take"
    """It is there as declared, and is the configuration's from now on."""
    CONFLICT = "conflict"
    """It cannot or may not be made what was declared; it stays as it is."""
    LEFT = "left"
    """It is not declared any more; it stays as it is, and is the API's from now on."""


@dataclass(frozen=True)
class Found:
    """`untouched`: as the installation began with it, so nobody decided anything about it yet."""

    shape: Shape
    untouched: bool = False


class Declared(Protocol):
    """One thing that the configuration declares. `fixed`: parts of its shape that no change can reach."""

    @property
    def what(self) -> Declarable: ...

    @property
    def name(self) -> str: ...

    @property
    def fixed(self) -> tuple[str, ...]: ...

    def wanted(self) -> Shape: ...

    def find(self, core: Core) -> Found | None: ...

    def create(self, core: Core, caller: Caller) -> None: ...

    def change(self, core: Core, caller: Caller) -> None:
        """Make it as wanted; safe against others who change it at the same time."""
        ...


@dataclass(frozen=True)
class Outcome:
    """What was decided about one thing, and whether it worked. `note` names fields and never a value."""

    what: Declarable
    name: str
    verdict: Verdict
    note: str = ""
    error: str = ""

    @property
    def settled(self) -> bool:
        """Whether the installation is as declared."""
        return self.verdict is not Verdict.CONFLICT and not self.error

    def __str__(self) -> str:
        """One line for a person."""
        why = f"failed: {self.error}" if self.error else self.note
        return f"{self.verdict:9}{self.what} {self.name}" + (f": {why}" if why else "")


def reconcile(
    core: Core, declared: Iterable[Declared], *, take_over: bool = False, dry_run: bool = False
) -> Iterator[Outcome]:
    """One outcome for each thing, as soon as it is known; what fails keeps nothing else from being tried.

    `take_over` lets the configuration win over what the API made. With `dry_run` nothing is written.
    """
    marks = _marks(core)
    for thing in declared:
        mark = marks.pop((thing.what, thing.name), None)
        try:
            yield _one(core, thing, mark, take_over=take_over, dry_run=dry_run)
        except DifferentlyError as error:
            yield Outcome(thing.what, thing.name, Verdict.CONFLICT, error=error.message)
    for mark in marks.values():
        if not dry_run:
            core.commit([Delete(Declaration, mark.key(), "mark")])
        yield Outcome(mark.what, mark.name, Verdict.LEFT, "it is not declared any more: left as it is, for the API")


def _one(core: Core, thing: Declared, mark: Declaration | None, *, take_over: bool, dry_run: bool) -> Outcome:
    outcome = decide(thing, thing.find(core), mark, take_over=take_over)
    if dry_run or outcome.verdict is Verdict.CONFLICT:
        return outcome
    if outcome.verdict is Verdict.CREATE:
        thing.create(core, DEPLOYMENT)
    elif outcome.verdict is Verdict.CHANGE:
        thing.change(core, DEPLOYMENT)
    written = digest(thing.wanted())
    if mark is None or mark.digest != written:
        fresh = Declaration(what=thing.what, name=thing.name, digest=written, at=core.clock.now())
        core.commit([Put(fresh, (), "mark")])
    return outcome


def decide(thing: Declared, found: Found | None, mark: Declaration | None, *, take_over: bool = False) -> Outcome:
    """Pure."""

    def outcome(verdict: Verdict, note: str = "") -> Outcome:
        return Outcome(thing.what, thing.name, verdict, note)

    wanted = thing.wanted()
    if found is None:
        gone = mark is not None
        return outcome(Verdict.CREATE, "it was deleted since the last deployment" if gone else "")
    differs = sorted(key for key in {*wanted, *found.shape} if wanted.get(key) != found.shape.get(key))
    if not differs:
        return outcome(Verdict.SAME if mark is not None else Verdict.TAKE)
    named = ", ".join(differs)
    stuck = [key for key in differs if key in thing.fixed]
    if stuck:
        return outcome(Verdict.CONFLICT, f"{', '.join(stuck)} cannot be changed; declare it under another name")
    if mark is None and not found.untouched and not take_over:
        return outcome(
            Verdict.CONFLICT,
            f"it was made by the API, and differs in {named}; leave it out, make it the same, or take it over",
        )
    drifted = mark is not None and mark.digest != digest(found.shape)
    return outcome(
        Verdict.CHANGE, f"{named}; it was changed by the API since the last deployment" if drifted else named
    )


def digest(shape: Shape) -> str:
    return hashlib.sha256(json.dumps(shape, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _marks(core: Core) -> dict[tuple[Declarable, str], Declaration]:
    table, pk, _ = Declaration.key_of(None, "")
    found: dict[tuple[Declarable, str], Declaration] = {}
    after: str | None = None
    while True:
        page = core.store.query(table, pk, after=after)
        found.update({(row.what, row.name): row for row in page.rows if isinstance(row, Declaration)})
        after = page.next
        if after is None:
            return found
