"""No budget is passed, whoever spends: random trees of agents against an honest model that takes all it is allowed.

The same for thousands of trees, with figures, is `python -m bench.budget_core`.
`HOLDFAST_FUZZ_RUNS` sets how many trees are tried, `HOLDFAST_FUZZ_SEED` repeats those of a seed that was printed.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.core.spending import World
from tests.core.spending_accounts import assert_all_of_it_is_known, assert_within

RUNS = int(os.environ.get("HOLDFAST_FUZZ_RUNS", "60"))
SEED = int(os.environ.get("HOLDFAST_FUZZ_SEED", str(random.SystemRandom().randrange(10**9))))


@pytest.mark.hypothesis  # `make slow` tries more of them
def test_no_tree_of_agents_passes_any_limit() -> None:
    print(f"HOLDFAST_FUZZ_SEED={SEED} HOLDFAST_FUZZ_RUNS={RUNS}")  # noqa: T201  # to repeat it by
    stopped_by: dict[str, int] = {}
    exempt = agents = steps = fallbacks = 0
    for number in range(RUNS):
        world = World(random.Random(SEED * 1_000_003 + number))  # noqa: S311  # nothing secret
        try:
            world.run()
            for agent in world.agents:
                exempt += assert_within(agent)
            assert_all_of_it_is_known(world.root)
        except AssertionError as error:
            raise AssertionError(f"run {number} of HOLDFAST_FUZZ_SEED={SEED}: {error}") from error
        agents += len(world.agents)
        steps += sum(each.state.step_count for each in world.agents)
        fallbacks += world.fallbacks
        why = str(world.root.state.stop_reason)
        stopped_by[why] = stopped_by.get(why, 0) + 1
    told = f"{RUNS} trees, {agents} agents, {steps} steps; ended by {stopped_by}"
    told = f"{told}; {exempt} budgets passed, each by its first call's own input alone"
    print(told)  # noqa: T201  # the figures
    assert RUNS < 300 or fallbacks
    assert RUNS < 300 or {"token_limit", "cost_limit", "steps_limit", "time_limit"} <= stopped_by.keys()
