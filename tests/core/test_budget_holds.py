"""No budget is passed, whoever spends: random trees of agents against an honest model that takes all it is allowed.

`HOLDFAST_FUZZ_RUNS` sets how many trees are tried, `HOLDFAST_FUZZ_SEED` repeats those of a seed that was printed.
"""

from __future__ import annotations

import os
import random

from holdfast.core.base.usage import NOTHING_USED, Prices
from holdfast.core.conversation.stop_reasons import StopReason
from tests.core.spending import Agent, World

RUNS = int(os.environ.get("HOLDFAST_FUZZ_RUNS", "300"))
SEED = int(os.environ.get("HOLDFAST_FUZZ_SEED", str(random.SystemRandom().randrange(10**9))))

ROUNDING_USD = 1e-9


def test_no_tree_of_agents_passes_any_limit() -> None:
    print(f"HOLDFAST_FUZZ_SEED={SEED} HOLDFAST_FUZZ_RUNS={RUNS}")  # noqa: T201  # to repeat it by
    stopped_by: dict[str, int] = {}
    exempt = agents = steps = 0
    for number in range(RUNS):
        world = World(random.Random(SEED * 1_000_003 + number))  # noqa: S311  # nothing secret
        try:
            world.run()
            for agent in world.agents:
                exempt += _assert_within(agent)
            _assert_all_of_it_is_known(world.root)
        except AssertionError as error:
            raise AssertionError(f"run {number} of HOLDFAST_FUZZ_SEED={SEED}: {error}") from error
        agents += len(world.agents)
        steps += sum(each.state.step_count for each in world.agents)
        why = str(world.root.state.stop_reason)
        stopped_by[why] = stopped_by.get(why, 0) + 1
    told = f"{RUNS} trees, {agents} agents, {steps} steps; ended by {stopped_by}"
    told = f"{told}; {exempt} budgets passed, each by its first call's own input alone"
    print(told)  # noqa: T201  # the figures
    assert RUNS < 300 or {"token_limit", "cost_limit", "steps_limit", "time_limit"} <= stopped_by.keys()


def _assert_within(agent: Agent) -> int:
    """Check what the model's side counted below `agent`; return whether its budget was too small for its first call."""
    budget, tree = agent.budget, agent.tree()
    used = sum((each.spent for each in tree), NOTHING_USED)
    cost = sum(each.cost for each in tree)
    tokens_over = cost_over = 0.0
    if agent.own:  # its first call's input may take more than the half of the budget that is kept for it
        first = agent.first_input or 0
        prices = agent.definition.llm.prices or Prices(input_usd=0, output_usd=0)
        tokens_over = max(0, first - (budget.max_tokens or 0) // 2)
        cost_over = max(0.0, prices.dearest_input_cost(first) - (budget.max_cost or 0.0) / 2)
    name = f"{agent.definition.name} of {len(tree)}"
    if budget.max_tokens is not None:
        assert used.total_tokens <= budget.max_tokens + tokens_over, f"{name}: {used} against {budget.max_tokens}"
    if budget.max_cost is not None:
        assert cost <= budget.max_cost + cost_over + ROUNDING_USD, f"{name}: {cost} USD against {budget.max_cost}"
    if budget.max_steps is not None:
        steps = sum(each.state.step_count for each in tree)
        overridden = sum(each.state.running.continuation.overrides for each in tree)
        assert steps <= budget.max_steps + overridden, f"{name}: {steps} steps against {budget.max_steps}"
        if agent.state.stop_reason is StopReason.STEPS_LIMIT and len(agent.tree(others_too=True)) == 1:
            assert agent.state.step_count >= budget.max_steps, f"{name}: stopped before its last step"
    passed = budget.max_tokens is not None and used.total_tokens > budget.max_tokens
    return passed or (budget.max_cost is not None and cost > budget.max_cost + ROUNDING_USD)


def _assert_all_of_it_is_known(root: Agent) -> None:
    """What every call used, failed and cancelled ones too, has come up to the root; what nobody told, as a bound."""
    tree = root.tree(others_too=True)
    told, billed = root.state.usage, sum((each.spent for each in tree), NOTHING_USED)
    assert told.input_tokens >= billed.input_tokens
    assert told.output_tokens >= billed.output_tokens
    assert told.total_tokens - told.estimated_tokens <= billed.total_tokens
    if not told.estimated_tokens:
        assert told == billed
    cost = sum(each.cost for each in tree)
    assert root.state.cost >= cost - ROUNDING_USD
    assert told.estimated_tokens or root.state.cost <= cost + ROUNDING_USD
