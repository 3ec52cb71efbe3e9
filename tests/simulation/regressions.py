"""Seeds that found a fault once, with what it was.

They guard against its return only as long as the schedule of a seed stays what it was; each fault also has a test of
its own in `tests/unit/core`, which does not depend on that.
"""

from __future__ import annotations

from collections.abc import Mapping

REGRESSIONS: Mapping[tuple[int, int], str] = {
    (1, 500): "a mark of waiting that nobody stood behind refused every create that did not want to wait",
    (6, 500): "a worker that stood still removed an instance that another worker had admitted meanwhile",
    (18, 500): "a deleted sandbox could not end while its Idempotency-Key named a new one",
    (19, 500): "the second instance of a create that made two was left behind for ever",
    (1002, 2000): "a paused sandbox that its backend brought back without its rules was shown as running",
    (1019, 500): "the same, of one whose pause was called off",
    (2018, 2000): "a sandbox that woke under a clock that had gone back was counted twice",
    (115, 2000): "dispatch took a sandbox for a stray that was back in the queue, and dropped its row",
}
"""(seed, steps) -> what was wrong."""
