"""Faults planted on purpose, to see whether the simulation finds them: `python -m tests.simulation.mutants`.

Each is one edit of the core, made in a copy. A mutant whose text is not found any more is told, so that the list is
kept up; a mutant that survives is a hole in the invariants, or in what the schedule reaches.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORE = Path("layers/core/differently_core")
COPIED = ("layers", "functions")
IMPORTED = ("layers/core", "layers/adapters", "functions/api")
TESTS = ("tests/unit/core", "tests/simulation/test_crash_matrix.py", "tests/simulation/test_crash_snapshots.py")
"""Asked about what the simulation lets pass: a race that few seeds come across has a test of its own."""


@dataclass(frozen=True)
class Mutant:
    """`old` must stand in the file; its first place is replaced."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    """Asked instead of the simulation, about what it does not run; `file` then begins at the root."""


MUTANTS = (
    Mutant(
        "the interval that ends is not written",
        "operations/ending.py",
        "return changed, [put] if ended is None else [put,",
        "return changed, [put] if after.status in ENDED or ended is None else [put,",
    ),
    Mutant(
        "counting begins again at the create",
        "operations/metering.py",
        "Meter(since=at, pool=sandbox.pool, price=price)",
        "Meter(since=sandbox.created_at, pool=sandbox.pool, price=price)",
    ),
    Mutant(
        "a slot is given back twice",
        "operations/ending.py",
        "        *give_back(sandbox, keep_pool=attempt is not None and not proved),\n        *backlogs",
        "        *give_back(sandbox, keep_pool=False),\n        *backlogs",
    ),
    Mutant(
        "the write of a sandbox has no condition",
        "operations/ending.py",
        'Put(changed, (Equals("version", before.version),), "sandbox")',
        'Put(changed, (), "sandbox")',
    ),
    Mutant(
        "the write of an attempt has no condition",
        "operations/ending.py",
        'Put(changed, (Equals("version", before.version),), "attempt")',
        'Put(changed, (), "attempt")',
    ),
    Mutant(
        "an update does not look at the version",
        "operations/sandboxes.py",
        '(Equals("version", found.version),), "sandbox"), *others]',
        '(), "sandbox"), *others]',
    ),
    Mutant(
        "a key is freed again when its sandbox ends",
        "operations/ending.py",
        "if sandbox.idempotent and sandbox.status in LIVE:",
        "if sandbox.idempotent:",
    ),
    Mutant(
        "a key is not freed by a delete",
        "operations/sandboxes.py",
        'core.commit([mark, free_key(identity), Put(event, (Absent(),), "event")])',
        'core.commit([mark, Put(event, (Absent(),), "event")])',
    ),
    Mutant(
        "a key is not freed by an expiry",
        "operations/worker.py",
        "core.commit([*actions, free_key(sandbox.id)] if sandbox.idempotent else actions)",
        "core.commit(actions)",
    ),
    Mutant(
        "an expiry does not look at the clock",
        "operations/worker.py",
        "if sandbox.expires_at is not None and now >= sandbox.expires_at:",
        "if sandbox.expires_at is not None:",
    ),
    Mutant(
        "an attempt is recorded after its call",
        "operations/worker.py",
        '    outcome = core.store.transact([put, Put(attempt, (Absent(),), "attempt")])\n    if isinstance(outcome',
        "    outcome = core.store.transact([put])\n    if isinstance(outcome",
    ),
    Mutant(
        "a lost create is repeated where creates are not idempotent",
        "operations/worker.py",
        "if not vanished and info.idempotent_create and attempt.calls",
        "if not vanished and attempt.calls",
    ),
    Mutant(
        "a lost create is given up before a late instance could come",
        "operations/worker.py",
        "elif vanished or over:",
        "elif True:",
    ),
    Mutant(
        "an attempt is taken for finished although its call may still have an effect",
        "operations/worker.py",
        "    return attempt.ended or core.clock.now() >= attempt.settles_at",
        "    return True",
    ),
    Mutant(
        "a refusal of a repeated call is taken for proof that the first one came to nothing",
        "operations/worker.py",
        "    proved = attempt is None or attempt.calls == 1",
        "    proved = True",
    ),
    Mutant(
        "the create is called however late it is",
        "operations/worker.py",
        "    seconds = (attempt.call_until - core.clock.now()).total_seconds()",
        "    seconds = 60.0",
    ),
    Mutant(
        "a claim holds for ever",
        "model/sandbox.py",
        "and now < self.claim.until",
        "and True",
    ),
    Mutant(
        "a claim holds for nobody",
        "operations/worker.py",
        "    if sandbox.claimed(core.clock.now()):\n        return\n",
        "",
    ),
    Mutant(
        "a terminated sandbox is not looked for at the backend",
        "operations/backends.py",
        "    return find_instance(adapter, target) is None\n",
        "    return True\n",
    ),
    Mutant(
        "a second instance of the same create is not looked for",
        "operations/worker.py",
        "        return find_instance(adapter, Target(owner)) is None or delete_instance(adapter, Target(owner))",
        "        return True",
    ),
    Mutant(
        "an instance that a cleanup means is admitted",
        "operations/worker.py",
        "    if any(debt.ref == instance.ref for debt in debts):",
        "    if False:",
    ),
    Mutant(
        "a cleanup deletes what it finds by owner",
        "operations/cleanup.py",
        "    if found is None or found.ref not in in_use:\n",
        "    if found is not None:\n        delete_instance(adapter, Target(owner, found.ref))\n"
        "    if found is None or found.ref not in in_use:\n",
    ),
    Mutant(
        "a settled debt does not give its slot back",
        "operations/cleanup.py",
        "[write_attempt(debt, settled(core, debt)), *left_by(debt)]",
        "[write_attempt(debt, settled(core, debt))]",
    ),
    Mutant(
        "a sandbox is put to rest where no place is left",
        "operations/accounts.py",
        '(AtLeast("free_retained", 1),), places=-1)',
        "(), places=-1)",
    ),
    Mutant(
        "a sandbox that runs again does not give its place back",
        "operations/accounts.py",
        "Size(), 1, (), places=1)]",
        "Size(), 1, (), places=0)]",
    ),
    Mutant(
        "who is admitted keeps the place in a bounded backlog",
        "operations/dispatch.py",
        "    actions += backlogs.leave_together(sandboxes[entry.row.sandbox] for entry in chosen)\n",
        "",
    ),
    Mutant(
        "a create waits in a backlog that is full",
        "operations/backlogs.py",
        'when = () if at_any_rate else (AtLeast("free", 1),)',
        "when = ()",
    ),
    Mutant(
        "what began to rest goes on without its rules",
        "operations/moving.py",
        "    if move.called_at is None or sandbox.egress_rules is None:\n        return True\n",
        "    return True\n",
    ),
    Mutant(
        "a debt has no due time",
        "operations/ending.py",
        "holds_place=kept, due_at=core.clock.now())",
        "holds_place=kept)",
    ),
    Mutant(
        "a stuck delete keeps the tenant's quota",
        "operations/worker.py",
        '*give_back(sandbox, keep_pool=True), event_of(core, WORKER, "sandbox.release", sandbox, waiting)',
        'event_of(core, WORKER, "sandbox.release", sandbox, waiting)',
    ),
    Mutant(
        "a requeued sandbox is not put into the queue",
        "operations/ending.py",
        '        Put(queue_row(changed), (), "queue"),\n',
        "",
    ),
    Mutant(
        "an admitted sandbox stays in the queue",
        "operations/dispatch.py",
        '            Delete(QueueRow, entry.row.key(), f"queue:{after.id}", (Present(),)),\n',
        "",
    ),
    Mutant(
        "a stray is dropped without looking at its sandbox",
        "operations/dispatch.py",
        '[Delete(QueueRow, entry.row.key(), "queue"), strayed]',
        '[Delete(QueueRow, entry.row.key(), "queue")]',
    ),
    Mutant(
        "dispatch does not charge the project",
        "operations/dispatch.py",
        "((Scope.ORG, str(after.org)), (Scope.PROJECT, str(after.project)), (Scope.POOL, entry.pool))",
        "((Scope.ORG, str(after.org)), (Scope.POOL, entry.pool))",
    ),
    Mutant(
        "admission does not look at what is free",
        "operations/accounts.py",
        "        if getattr(need, dimension) > 0\n",
        "        if getattr(need, dimension) > 10**15\n",
    ),
    Mutant(
        "a closed pool admits",
        "operations/accounts.py",
        '    when.append(Missing("closed"))\n',
        "",
    ),
    Mutant(
        "a create overtakes those who wait",
        "operations/accounts.py",
        "    if not overtake:\n",
        "    if False:\n",
    ),
    Mutant(
        "marks of waiting are never cleared for those who left",
        "operations/marks.py",
        "    page = core.store.query(Table.STATE, queue_partition(org)",
        "    return False\n    page = core.store.query(Table.STATE, queue_partition(org)",
    ),
    Mutant(
        "a new limit does not move what is free",
        "operations/tenants.py",
        'for side in ("free", "limit")}',
        'for side in ("limit",)}',
    ),
    Mutant(
        "external pools need no policy",
        "policy/placement.py",
        'return None if named and all(named) else _never("external_not_allowed")',
        "return None",
    ),
    Mutant(
        "the environment stays after the end",
        "operations/ending.py",
        "    if sandbox.has_env:\n",
        "    if False:\n",
    ),
    Mutant(
        "a provisioning sandbox has no due time",
        "operations/create.py",
        "due_at=core.after(core.tuning.observe_seconds),",
        "due_at=None,",
    ),
    Mutant(
        "a deleted sandbox has no due time in the index",
        "operations/sandboxes.py",
        "**list_index(project, identity, Status.TERMINATING), **due_index(identity, now),",
        "**list_index(project, identity, Status.TERMINATING),",
    ),
    Mutant(
        "a sweep sees sandboxes and no debts",
        "operations/sweep.py",
        '    if kind == "attempt":\n        core.nudges.cleanup',
        '    if kind == "attempt":\n        return\n        core.nudges.cleanup',
    ),
    Mutant(
        "two pools are never taken for one backend",
        "operations/backends.py",
        '    return "" in names or len(names) == 1',
        "    return False",
    ),
    Mutant(
        "two pools are always taken for one backend",
        "operations/backends.py",
        '    return "" in names or len(names) == 1',
        "    return True",
    ),
    Mutant(
        "a sandbox goes back to a pool that it owes",
        "policy/placement.py",
        "        if rejection is None and candidate.pool.name in blocked:",
        "        if False:",
    ),
    Mutant(
        "a failed instance is removed before that is written down",
        "operations/worker.py",
        '    reason = Reason(code="sandbox_failed", source="backend", detail=detail, at=core.clock.now())\n',
        '    reason = Reason(code="sandbox_failed", source="backend", detail=detail, at=core.clock.now())\n'
        "    remove(core, adapter_of(core, attempt.pool), attempt)\n",
    ),
    Mutant(
        "the reconciler believes what it sees once",
        "operations/reconcile.py",
        "        if now - since < GRACE or not _settle(run, finding):",
        "        if not _settle(run, finding):",
    ),
    Mutant(
        "the reconciler believes a list without a direct look",
        "operations/reconcile.py",
        "        calling(run.adapter, lambda: run.adapter.get(Target(core.owner(sandbox.id), stored.ref)))\n",
        '        raise NotFound("")\n',
    ),
    Mutant(
        "a failure is counted and no event tells of it",
        "operations/ending.py",
        '        event_of(core, caller, "sandbox.requeue", sandbox, changed),\n',
        "",
    ),
    Mutant(
        "a sandbox at rest keeps what it held",
        "operations/moving.py",
        "            reservation=None,\n            incarnation=seen.incarnation,\n        )",
        "            incarnation=seen.incarnation,\n        )",
    ),
    Mutant(
        "a sandbox wakes without taking quota",
        "operations/moves.py",
        'event_of(core, caller, f"sandbox.{kind}", found, changed), *_take(core, changed)]',
        'event_of(core, caller, f"sandbox.{kind}", found, changed)]',
    ),
    Mutant(
        "a pause or resume is told to the backend again",
        "operations/moving.py",
        "Transition(move.operation, move.incarnation, observe_only=True)",
        "Transition(move.operation, move.incarnation)",
    ),
    Mutant(
        "the outcome of a move is written over a newer intent",
        "operations/moving.py",
        "    if stored.generation != sandbox.generation or stored.move is None or sandbox.move is None:\n"
        "        return False\n",
        "    if stored.move is None or sandbox.move is None:\n        return False\n",
    ),
    Mutant(
        "what runs in a sandbox does not keep it awake",
        "model/sandbox.py",
        "return unused if unused is None or self.busy_until is None else max(unused, self.busy_until)",
        "return unused",
    ),
    Mutant(
        "a busy sandbox is preempted",
        "model/sandbox.py",
        "return spare if self.busy_until is None else max(spare, self.busy_until)",
        "return spare",
    ),
    Mutant(
        "use is noted in a sandbox that does not run any more",
        "operations/use.py",
        'when=(Equals("status", Status.RUNNING.value), *when),',
        "when=when,",
    ),
    Mutant(
        "a renewal without an answer is taken for one that was heard",
        "operations/leases.py",
        "    seen: Instance = calling(adapter, lambda: adapter.get(target))\n    return seen.expires_at\n",
        "    return until\n",
    ),
    Mutant(
        "a removed snapshot goes on counting",
        "operations/capturing.py",
        '        *tallies.give_back(snapshot), _event(core, "snapshot.deleted"',
        '        _event(core, "snapshot.deleted"',
    ),
    Mutant(
        "a snapshot is removed under a restore",
        "operations/capturing.py",
        "    if in_use(core, snapshot.id):\n        _write_or_note",
        "    if False:\n        _write_or_note",
    ),
    Mutant(
        "a capture is not written down before the call",
        "operations/capturing.py",
        "unsettled=snapshot.unsettled or captures",
        "unsettled=snapshot.unsettled",
    ),
    Mutant(
        "a refusal makes an earlier capture forgotten",
        "operations/capturing.py",
        "unsettled=before and isinstance(error, BackendError)",
        "unsettled=False",
    ),
    Mutant(
        "one look proves that a snapshot is lost",
        "operations/capturing.py",
        "if now - first < timedelta(seconds=LOOK_AGAIN_SECONDS):",
        "if False:",
    ),
    Mutant(
        "a snapshot that was changed meanwhile never learns what was captured",
        "operations/capturing.py",
        "    if isinstance(outcome, Refused):\n        _note(core, before)\n",
        "    if isinstance(outcome, Refused):\n        pass\n",
    ),
    Mutant(
        "the snapshot of a fork stays",
        "operations/capturing.py",
        "    elif snapshot.fork is not None and not in_use(core, snapshot.id):\n        _retire",
        "    elif False:\n        _retire",
    ),
    Mutant(
        "a sandbox keeps its hold on what it was made from",
        "operations/restoring.py",
        "    if sandbox.from_snapshot is None:\n        return []\n",
        "    return []\n",
    ),
    Mutant(
        "a snapshot that is going is held all the same",
        "operations/restoring.py",
        "        Check(Snapshot, Snapshot.key_of(snapshot), SOURCE, "
        '(Equals("status", SnapshotStatus.READY.value),)),\n',
        "",
    ),
    Mutant(
        "a restore starts from nothing",
        "operations/worker.py",
        "**secrets}, from_snapshot=source,",
        "**secrets}, from_snapshot=None,",
    ),
    Mutant(
        "a fork does not hold its snapshot",
        "operations/forking.py",
        '        Put(SnapshotUse(snapshot=snapshot.id, sandbox=child.id), (), "use"),\n',
        "",
    ),
    Mutant(
        "snapshots are taken beyond the quota",
        "operations/tallies.py",
        "_change(scope, name, 1, 0, _room(limits.get(scope)))",
        "_change(scope, name, 1, 0)",
    ),
    Mutant(
        "a pool that was removed meanwhile takes a snapshot",
        "operations/snapshots.py",
        ' Check(Pool, Pool.key_of(draft.pool), "pool", (Present(),)),',
        "",
    ),
    Mutant(
        "a port of an earlier run passes for one of this",
        "operations/ports.py",
        "sandbox.status is not Status.RUNNING or sandbox.generation != row.generation",
        "sandbox.status is not Status.RUNNING",
    ),
    Mutant(
        "an open port is looked at when its time is over, and not before",
        "operations/ports.py",
        "expires_at=_end(place, row, shown), due_at=core.after(LOOK_SECONDS)",
        "expires_at=_end(place, row, shown), due_at=row.expires_at",
    ),
    Mutant(
        "a port is opened behind a delete",
        "operations/ports.py",
        'when=(Equals("status", Status.RUNNING.value), Equals("generation", sandbox.generation)),',
        "when=(),",
    ),
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("--seeds", default="1-50")
    parser.add_argument("--steps", default="2000")
    parser.add_argument("--only", default="", help="a part of a mutant's description")
    options = parser.parse_args(arguments)
    return report([mutant for mutant in MUTANTS if options.only in mutant.what], options.seeds, options.steps)


def report(chosen: Sequence[Mutant], seeds: str, steps: str) -> int:
    """Try each and print what became of it; the number of a process's success or failure."""
    survivors = 0
    for mutant in chosen:
        found = _found(mutant, seeds, steps) if planted(mutant) else None
        survivors += found is None
        word = "found   " if found else "SURVIVES" if planted(mutant) else "STALE   "
        print(f"{word}  {mutant.what}: {found or ''}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} found")
    return 1 if survivors else 0


def planted(mutant: Mutant) -> bool:
    """Whether it can be: its text stands in the file as it is now."""
    path = ROOT / _place(mutant)
    return path.exists() and mutant.old in path.read_text()


def _place(mutant: Mutant) -> Path:
    return Path(mutant.file) if mutant.tests else CORE / mutant.file


def _found(mutant: Mutant, seeds: str, steps: str) -> str | None:
    """What the simulation, or a test, says of the mutant; None if they say nothing."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for part in COPIED:
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        path = copy / _place(mutant)
        path.write_text(path.read_text().replace(mutant.old, mutant.new, 1))
        paths = os.pathsep.join(str(entry) for entry in (*(copy / place for place in IMPORTED), ROOT))
        environment = {**os.environ, "PYTHONPATH": paths}
        simulated = None if mutant.tests else _simulated(seeds, steps, environment)
        return simulated or _tested(mutant.tests or TESTS, environment)


def _simulated(seeds: str, steps: str, environment: dict[str, str]) -> str | None:
    ran = _run(["tests.simulation", "--seeds", seeds, "--steps", steps, "--until-found"], environment)
    if not ran.returncode:
        return None
    return next((line for line in ran.stderr.splitlines() if line.startswith("seed ")), ran.stderr[-500:])


def _tested(tests: Sequence[str], environment: dict[str, str]) -> str | None:
    ran = _run(["pytest", "-x", "-q", "-p", "no:cacheprovider", *tests], environment)
    failed = (line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR")))
    return next(failed, "a test fails") if ran.returncode else None


def _run(module: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *module]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
