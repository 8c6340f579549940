"""Whether budgets hold in the core, over thousands of random trees of agents. `python -m bench.budget_core`.

The trees are those of `tests/core/spending.py`: subagents, retries, fallbacks between models that count tokens
differently and have longest answers of their own, hooks that change calls and their service tier, summaries and stops,
against models that spend whatever they are allowed and cache what they like of their input. Nothing is asked of a
server: `bench.budget` measures the same there, with fewer runs.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields
from functools import partial
from multiprocessing import get_context
from typing import Final

from bench.report import Goal, show_goals, show_table
from holdfast.core.base.usage import NOTHING_USED, Usage
from tests.core.spending import World
from tests.core.spending_accounts import assert_all_of_it_is_known, assert_within

RUNS: Final = 10_000
PROCESSES: Final = 2
CHUNK: Final = 100
"""How many trees a process runs at a time."""

SHOWN_MAX: Final = 10
"""How many trees that passed a budget are named."""


@dataclass
class Figures:
    """What came of some trees."""

    trees: int = 0
    agents: int = 0
    steps: int = 0
    calls: int = 0
    failed: int = 0
    fallbacks: int = 0
    changed: int = 0
    priced_anew: int = 0
    excused: int = 0
    spent: Usage = NOTHING_USED
    ended: Counter[str] = field(default_factory=Counter[str])
    problems: list[str] = field(default_factory=list[str])

    def add(self, other: Figures) -> None:
        """Add those of other trees."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


def measured(numbers: Iterable[int], seed: int) -> Figures:
    """Run the trees of these numbers to their ends, and look at every account."""
    figures = Figures()
    for number in numbers:
        world = World(random.Random(seed * 1_000_003 + number))  # noqa: S311  # nothing secret
        try:
            world.run()
            figures.excused += sum(assert_within(agent) for agent in world.agents)
            assert_all_of_it_is_known(world.root)
        except AssertionError as error:
            figures.problems.append(f"tree {number}: {error}")
        figures.trees += 1
        figures.agents += len(world.agents)
        figures.steps += sum(each.state.step_count for each in world.agents)
        figures.calls += world.calls
        figures.failed += world.failed
        figures.fallbacks += world.fallbacks
        figures.changed += world.changed
        figures.priced_anew += world.priced_anew
        figures.spent = sum((each.spent for each in world.agents), figures.spent)
        figures.ended[str(world.root.state.stop_reason)] += 1
    return figures


def measure(runs: int, seed: int, processes: int = PROCESSES) -> Figures:
    """Return the figures of `runs` trees, run in so many processes."""
    chunks = [range(start, min(runs, start + CHUNK)) for start in range(0, runs, CHUNK)]
    figures = Figures()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        try:
            for each in pool.map(partial(measured, seed=seed), chunks):
                figures.add(each)
        except KeyboardInterrupt:  # the figures say how many there were
            pool.shutdown(wait=False, cancel_futures=True)
    return figures


def show(figures: Figures, seed: int, seconds: float) -> bool:
    """Print the figures; return whether no budget was passed."""
    spent = figures.spent
    rows = [
        ["trees of agents (seed)", f"{figures.trees:,} ({seed})"],
        ["agents, steps", f"{figures.agents:,}, {figures.steps:,}"],
        ["model calls, failed attempts, fallbacks", f"{figures.calls:,}, {figures.failed:,}, {figures.fallbacks:,}"],
        ["model calls that hooks changed", f"{figures.changed:,}"],
        ["fallbacks in another service tier", f"{figures.priced_anew:,}"],
        ["tokens charged", f"{spent.total_tokens:,}"],
        [
            "of them cached, cache write, reasoning",
            f"{spent.cached_tokens:,}, {spent.cache_write_tokens:,}, {spent.reasoning_tokens:,}",
        ],
        ["ended by", ", ".join(f"{why} {count:,}" for why, count in figures.ended.most_common())],
        ["passed by a first call's own input alone", f"{figures.excused:,}"],
        ["seconds", f"{seconds:.0f}"],
    ]
    show_table("Budgets, in the core", ("figure", "value"), rows)
    over = len(figures.problems)
    show_goals([Goal("overspent or under-reported 0", str(over), over == 0)])
    for problem in figures.problems[:SHOWN_MAX]:
        sys.stderr.write(f"{problem}\n")
    return over == 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 when a budget was passed."""
    parser = argparse.ArgumentParser(prog="python -m bench.budget_core", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help=f"how many trees (default {RUNS})")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="to repeat a bench")
    parser.add_argument("--processes", type=int, default=PROCESSES, help=f"how many at once (default {PROCESSES})")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    figures = measure(options.runs, options.seed, options.processes)
    return 0 if show(figures, options.seed, time.monotonic() - began) else 1


if __name__ == "__main__":
    sys.exit(main())
