"""Run many seeds: `python -m tests.simulation --seeds 1-200 --steps 5000`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor

from differently_core.runtime.clock import SystemClock

from .coverage import missed, table, together
from .simulation import Failed, Result, run

STORIES_MAX = 3
"""Told whole; of further failures only what they were."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="1-50", help="one seed, or the first and the last: 1-50")
    parser.add_argument("--steps", type=int, default=2000, help="how many steps each seed takes")
    parser.add_argument("--processes", type=int, default=1, help="how many seeds run at once")
    parser.add_argument("--until-found", action="store_true", help="stop at the first seed that fails")
    options = parser.parse_args(arguments)
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    clock = SystemClock()
    began = clock.monotonic()
    results, stories = _run_all(seeds, options.steps, options.processes, options.until_found)
    seconds = clock.monotonic() - began
    total = together(result.tally for result in results)
    print(table(total))
    print(f"never hit: {', '.join(missed(total)) or 'nothing'}")
    rate = len(seeds) * options.steps / seconds
    print(f"{len(results)} of {len(seeds)} seeds hold, {len(seeds) * options.steps:,} steps, {rate:,.0f} steps/s")
    return 1 if stories else 0


def _run_all(seeds: Iterable[int], steps: int, processes: int, until_found: bool) -> tuple[list[Result], list[str]]:
    results: list[Result] = []
    stories: list[str] = []
    with ProcessPoolExecutor(processes) as pool:
        for future in [pool.submit(_told, seed, steps) for seed in seeds]:
            outcome = future.result()
            if isinstance(outcome, Result):
                results.append(outcome)
            else:
                told = outcome if len(stories) < STORIES_MAX else outcome.partition("\n")[0]
                stories.append(outcome)
                print(told, file=sys.stderr, flush=True)
                if until_found:
                    pool.shutdown(cancel_futures=True)
                    break
    return results, stories


def _told(seed: int, steps: int) -> Result | str:
    try:
        return run(seed, steps)
    except Failed as failed:
        return str(failed)


if __name__ == "__main__":
    sys.exit(main())
