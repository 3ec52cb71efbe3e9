"""Each fault that was met once, here or in the system that we learned from, planted again: is it found?

    python -m tests.simulation.past_faults

The numbers are those of `docs/reference/features.md`. Every one that can be planted by an edit stands here, or names
the mutant of `mutants.py` that it is. The rest have nothing to plant it in; they are told, with the reason.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from .mutants import Mutant, report

ADAPTERS, CORE, API = (
    "layers/adapters/differently_adapters",
    "layers/core/differently_core",
    "functions/api/differently_api",
)
OPENSANDBOX = "tests/conformance/adapters/test_opensandbox_faults.py"

PAST: Mapping[str, Mutant] = {
    "1": Mutant(
        "a store that does not answer is told as a fault of ours",
        f"{CORE}/store/ports.py",
        'a write may or may not have happened."""\n\n    code = "provider_unavailable"',
        'a write may or may not have happened."""\n\n    code = "internal"',
        ("tests/integration/api/test_errors.py",),
    ),
    "3": Mutant(
        "an instance that stopped by itself is taken to run",
        f"{CORE}/operations/difference.py",
        "elif instance.state is not InstanceState.PENDING and instance.state is not _EXPECTED[attempt.rests]:",
        "elif False:",
        ("tests/unit/core/test_reconcile.py",),
    ),
    "10": Mutant(
        "a template's images do not say where it can run",
        f"{CORE}/policy/placement.py",
        "    template_unavailable,\n",
        "",
        ("tests/unit/core/test_placement.py",),
    ),
    "11": Mutant(
        "everything is sent to an external pool without a word",
        f"{CORE}/operations/pool_changes.py",
        "if pool.trust is Trust.EXTERNAL and not approve_external:",
        "if False:",
        ("tests/integration/api/test_pool_changes.py",),
    ),
    "13": Mutant(
        "an image that cannot be pulled is an outage of the pool",
        f"{ADAPTERS}/providers/opensandbox/errors.py",
        'Status(SandboxFailed, "The image could not be pulled."',
        'Status(ProviderUnavailable, "The image could not be pulled."',
        (OPENSANDBOX,),
    ),
    "16, refs": Mutant(
        "a ref that is no id leads somewhere",
        f"{ADAPTERS}/providers/devhost/directory.py",
        'if target.ref is not None and not is_id("sbx", target.ref):',
        "if False:",
        ("tests/unit/adapters/test_devhost.py",),
    ),
    "16, downloads": Mutant(
        "a browser may run what a sandbox wrote",
        f"{API}/routes/files.py",
        '        "Content-Security-Policy": "sandbox; default-src \'none\'",\n',
        "",
        ("tests/integration/api/test_files.py",),
    ),
    "17": Mutant(
        "slashes are trimmed by an expression that looks at each of them anew",
        f"{ADAPTERS}/http/endpoints.py",
        '    path = path.rstrip("/")\n',
        '    path = re.sub(r"/+$", "", path)\n',
        ("tests/regression/test_patterns.py",),
    ),
    "20": Mutant(
        "memory is captured where it is not kept",
        f"{ADAPTERS}/providers/opensandbox/adapter.py",
        '            raise unsupported(self, Operation.SNAPSHOT, self._pool, "no_memory_snapshots")\n',
        "            pass\n",
        (OPENSANDBOX,),
    ),
    "22": Mutant(
        "use wakes what a caller put to rest",
        f"{CORE}/operations/use.py",
        "if found.status in GONE or not found.idled or refused or",
        "if found.status in GONE or refused or",
        ("tests/unit/core/test_idle.py",),
    ),
    "23, 25, 27": Mutant(
        "a kind on somebody else's machines may be called private",
        f"{ADAPTERS}/registry.py",
        '"BoatAdapter", TrustList.ALWAYS_EXTERNAL',
        '"BoatAdapter", TrustList.OPERATOR_DECLARES',
        ("tests/unit/adapters/test_registry.py", "tests/unit/adapters/test_pools.py"),
    ),
    "25, 28": Mutant(
        "a line is kept however long it gets",
        f"{ADAPTERS}/http/lines.py",
        "            if size > bytes_max:\n                raise LineTooLong\n    if begun:",
        "    if begun:",
        ("tests/unit/adapters/http/test_lines.py",),
    ),
    "32": Mutant(
        "a create past its deadline is taken for one that was refused",
        f"{CORE}/operations/worker.py",
        "    unknown = isinstance(error, BackendError) and not error.settled\n",
        "    unknown = False\n",
        ("tests/unit/core/test_lost_answers.py",),
    ),
    "39, 41": Mutant(
        "the agent of a sandbox is spoken to by another scheme than the pool's",
        f"{ADAPTERS}/providers/opensandbox/lifecycle.py",
        "{self._scheme_of_execd}://",
        "https://",
        (OPENSANDBOX,),
    ),
    "45": Mutant(
        "a snapshot is deleted by its name, which is another's by now",
        f"{ADAPTERS}/providers/daytona/adapter.py",
        "            self._api.snapshot_delete(seen.id)\n",
        "            self._api.snapshot_delete(seen.name)\n",
        ("tests/conformance/adapters/test_daytona_faults.py", "tests/conformance/adapters/test_daytona.py"),
    ),
    "51": Mutant(
        "a tenant is told of pools that its policies deny",
        f"{CORE}/policy/placement.py",
        "    return all(rule(anything, candidate, rules, None) is None for rule in",
        "    return True or all(rule(anything, candidate, rules, None) is None for rule in",
        ("tests/integration/api/test_policies.py",),
    ),
    "72": Mutant(
        "a policy that cannot be read is no policy",
        f"{CORE}/operations/catalog.py",
        "return _Policies({}, readable=False)",
        "return _Policies({}, readable=True)",
        ("tests/integration/api/test_policies.py",),
    ),
    "73": Mutant(
        "what a list holds is taken for ours",
        f"{CORE}/operations/difference.py",
        "entry for entry in instances if entry.owner.installation == installation and",
        "entry for entry in instances if True or",
        ("tests/unit/core/test_reconcile.py",),
    ),
    "74, updates": Mutant(
        "an update to no time at all is taken",
        f"{CORE}/operations/requests.py",
        "ttl_seconds: Annotated[int, Field(ge=1, le=TTL_SECONDS_CEILING)] | None = None",
        "ttl_seconds: Annotated[int, Field(ge=0, le=TTL_SECONDS_CEILING)] | None = None",
        ("tests/unit/core/test_requests.py", "tests/integration/api/test_bad_input.py"),
    ),
    "74, creates": Mutant(
        "a lifetime below zero is taken",
        f"{CORE}/operations/requests.py",
        "TtlSeconds = Annotated[int, Field(ge=0, le=TTL_SECONDS_CEILING)]",
        "TtlSeconds = Annotated[int, Field(ge=-1, le=TTL_SECONDS_CEILING)]",
        ("tests/unit/core/test_requests.py", "tests/integration/api/test_bad_input.py"),
    ),
    "75": Mutant(
        "a pool that fails keeps the others from being looked at",
        f"{CORE}/operations/reconcile.py",
        '    except DifferentlyError as error:\n        log.warning("pool not reconciled"',
        '    except StoreThrottled as error:\n        log.warning("pool not reconciled"',
        ("tests/unit/core/test_reconcile.py",),
    ),
    "77": Mutant(
        "a backend ends a sandbox before we do",
        f"{ADAPTERS}/providers/opensandbox/creating.py",
        "SPARE_SECONDS: Final = 300",
        "SPARE_SECONDS: Final = -300",
        (OPENSANDBOX,),
    ),
    "78, gone": Mutant(
        "a credential that was deleted goes on being used",
        f"{ADAPTERS}/pools.py",
        "        except CredentialGone:\n            slot.built = None\n            raise\n",
        "",
        ("tests/unit/adapters/test_pools.py",),
    ),
    "78, unreadable": Mutant(
        "a credential that cannot be read takes a working adapter down",
        f"{ADAPTERS}/pools.py",
        "        except DifferentlyError as error:\n            if same is None:\n                raise\n",
        "        except DifferentlyError as error:\n            if True:\n                raise\n",
        ("tests/unit/adapters/test_pools.py",),
    ),
    "79": Mutant(
        "a key goes to another server than its own",
        f"{ADAPTERS}/http/client.py",
        "        other._headers = {name.lower(): value for name, value in headers.items()}\n",
        "        other._headers = {**self._headers, **{name.lower(): value for name, value in headers.items()}}\n",
        ("tests/unit/adapters/http/test_client.py",),
    ),
    "80": Mutant(
        "a stream has the bound of a buffered command",
        f"{CORE}/operations/execution.py",
        "_check_seconds(request, EXEC_SECONDS_MAX_STREAMED,",
        "_check_seconds(request, EXEC_SECONDS_MAX_BUFFERED,",
        ("tests/integration/api/test_commands.py",),
    ),
    "83": Mutant(
        "a kind that is not there is taken for another",
        f"{ADAPTERS}/registry.py",
        "    row = KINDS.get(kind)\n",
        '    row = KINDS.get(kind, KINDS["fake"])\n',
        ("tests/unit/adapters/test_registry.py",),
    ),
    "ours, refusals": Mutant(
        "a refusal beside a conflict is taken for a whole one",
        f"{CORE}/operations/core.py",
        "if isinstance(outcome, Committed) or not outcome.conflicts:",
        "if isinstance(outcome, Committed) or outcome.failed:",
        ("tests/unit/core/test_ending.py",),
    ),
    "ours, depth": Mutant(
        "an answer may nest as deep as the parser lets it",
        f"{ADAPTERS}/http/answers.py",
        "nests_deeper(value, JSON_DEPTH_MAX)",
        "nests_deeper(value, 10**6)",
        ("tests/unit/adapters/test_hostile_lines.py",),
    ),
}
"""By the number of the fault."""

ELSEWHERE: Mapping[str, str] = {
    "6": "two pools are never taken for one backend",
    "10, keys": "a key is not freed by a delete",
    "12": "a lost create is repeated where creates are not idempotent",
    "50": "a pause or resume is told to the backend again",
    "61, use": "what runs in a sandbox does not keep it awake",
    "61, preemption": "a busy sandbox is preempted",
    "76, updates": "an update does not look at the version",
    "76, deletes": "the outcome of a move is written over a newer intent",
}
"""Faults that are among the mutants of `mutants.py`, by what is said of them there."""

NOT_PLANTED: Mapping[str, str] = {
    "7": "a client prints its errors; its own tests look at that",
    "49": "a feature: pools may use stored secrets",
    "53": "a guest's clock is its provider's",
    "84": "a page of documentation",
    "85": "a list of events",
}
"""Faults that no edit of what is simulated brings back."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.past_faults", description=__doc__)
    parser.add_argument("--only", default="", help="a part of a fault's description")
    options = parser.parse_args(arguments)
    for fault, what in ELSEWHERE.items():
        print(f"elsewhere {fault}: {what}")
    for fault, reason in NOT_PLANTED.items():
        print(f"not here  {fault}: {reason}")
    return report([mutant for mutant in PAST.values() if options.only in mutant.what], "", "")


if __name__ == "__main__":
    sys.exit(main())
