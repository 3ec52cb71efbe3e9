"""A stand-in for an OpenSandbox server and the execd of its sandboxes: a real socket, real commands, planned faults.

It agrees with the recordings beside it, which were taken from the released server 1.1.1 and a real execd; a test
replays them here. What it does beyond them is written where it is done.
"""

from __future__ import annotations

from tests.conformance.adapters.stand_in.faults import (
    Fault,
    answer,
    cut_body,
    drop_after,
    drop_before,
    edit,
    html,
    lose_completion,
    redirect,
    reflect,
    slow,
)

from .server import FakeOpenSandbox

__all__ = [
    "FakeOpenSandbox",
    "Fault",
    "answer",
    "cut_body",
    "drop_after",
    "drop_before",
    "edit",
    "html",
    "lose_completion",
    "redirect",
    "reflect",
    "slow",
]
