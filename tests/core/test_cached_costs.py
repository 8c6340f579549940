"""Cost to the cent by hand of a loop whose provider caches its prefix, and how much of a budget such a loop uses."""

from __future__ import annotations

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM
from holdfast.core.base.frozen import replace
from holdfast.core.base.usage import Prices, Usage
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.commands import CallModel
from tests.core.building import Run, call

PREFIX = 40_000
"""The tokens of the prompt, the tools and the files that such a loop begins with."""

GROWTH = 300
"""How many tokens a step adds to the conversation: 200 visible ones of the answer and 100 of the tool's result."""

OUTPUT = 2_500
"""How many tokens an answer has, 2,300 of them hidden reasoning."""

OPENAI = Prices(input_usd=1.25, output_usd=10, cached_usd=0.125)
CLAUDE = Prices(input_usd=3, output_usd=15, cached_usd=0.3, cache_write_usd=3.75)


def looped(llm: LLM, budget: ExecutionBudget, steps_max: int = 1_000) -> tuple[Run, Usage]:
    """Return a loop that goes on until something stops it, and what its provider has billed."""
    run, billed = Run(budget, llm=llm).begin(), Usage()
    for step in range(steps_max):
        asked = run.wanted(CallModel)
        if not asked:
            break
        allowed = asked[0].max_output_tokens
        output = OUTPUT if allowed is None else min(OUTPUT, allowed)
        whole = Usage(input_tokens=PREFIX + GROWTH * step, output_tokens=output)
        cached = PREFIX + GROWTH * (step - 1) if step else 0
        written = 0 if llm.prices is None or llm.prices.cache_write_usd is None else whole.input_tokens - cached
        used = whole.with_parts(cached, written, max(0, output - 200))
        billed += used
        run.answer("word " * 160, call(f"c{step}"), usage=used, finish_reason="length" if output < OUTPUT else "")
        if run.state.status.is_terminal:
            break
        run.returns(f"c{step}", "fine " * 80)
    return run, billed


@pytest.mark.parametrize(
    ("prices", "by_hand"),
    [
        # 1,834,000 input: 51,700 new at 1.25, 1,782,300 cached at 0.125; 100,000 output at 10
        (OPENAI, 0.064625 + 0.2227875 + 1.0),
        # the same new ones written to the cache at 3.75, cached at 0.3, output at 15
        (CLAUDE, 0.193875 + 0.53469 + 1.5),
    ],
)
def test_forty_steps_on_a_cached_prefix_cost_what_one_adds_up_by_hand(prices: Prices, by_hand: float) -> None:
    run, billed = looped(LLM(prices=prices), ExecutionBudget(), steps_max=40)
    assert (billed.input_tokens, billed.cached_tokens, billed.output_tokens) == (1_834_000, 1_782_300, 100_000)
    assert run.state.usage == billed
    assert run.state.cost == pytest.approx(by_hand, abs=1e-9)


@pytest.mark.parametrize(
    ("prices", "max_cost", "least"),
    [
        (OPENAI, 1.38, 0.95),
        # a whole prompt written to the cache anew costs 8 % of this budget, and the last call must afford that
        (CLAUDE, 2.5, 0.92),
    ],
)
def test_a_cached_loop_of_forty_steps_uses_nearly_all_of_its_budget(
    prices: Prices, max_cost: float, least: float
) -> None:
    budget = ExecutionBudget(max_cost=max_cost)
    run, billed = looped(LLM(prices=prices), budget)
    spent, allowed = prices.cost(billed), budget.max_cost or 0.0
    flat, flat_billed = looped(LLM(prices=replace(prices, cached_usd=None, cache_write_usd=None)), budget)
    used, used_flat = spent / allowed, prices.cost(flat_billed) / allowed
    figures = f"{run.state.step_count} steps, {used:.1%} of the budget; {flat.state.step_count} steps, {used_flat:.1%}"
    print(f"by parts: {figures} at one price for every input")  # noqa: T201  # the figures
    assert run.state.stop_reason == flat.state.stop_reason == StopReason.COST_LIMIT
    assert run.state.cost == pytest.approx(spent)
    assert least <= used <= 1
    assert 40 <= run.state.step_count <= 45
    assert used_flat < 0.5


def test_what_a_loop_leaves_of_its_budget_is_less_than_one_input_at_the_dearest_price() -> None:
    for cents in (40, 77, 131, 250):
        run, billed = looped(LLM(prices=CLAUDE), ExecutionBudget(max_cost=cents / 100))
        left = cents / 100 - CLAUDE.cost(billed)
        next_input = billed.input_tokens - billed.cached_tokens + 3 * GROWTH * 4  # with a token per byte of what is new
        assert left + 1e-9 >= 0, f"{cents} cents are overspent"
        assert left <= CLAUDE.dearest_input_cost(next_input), f"{left} of {cents} cents are left"
        assert run.state.stop_reason is StopReason.COST_LIMIT


def test_a_provider_that_caches_nothing_any_more_cannot_bring_a_run_over_its_budget() -> None:
    budget = ExecutionBudget(max_cost=1.0)
    run = Run(budget, llm=LLM(prices=CLAUDE)).begin()
    billed, step = Usage(), 0
    while asked := run.wanted(CallModel):
        # the prompt is cached until the loop comes near its limit; then the provider has dropped and writes it all
        whole = Usage(input_tokens=PREFIX, output_tokens=min(OUTPUT, asked[0].max_output_tokens or 0))
        dropped = (budget.max_cost or 0.0) - CLAUDE.cost(billed) < 2 * CLAUDE.dearest_input_cost(PREFIX)
        used = whole.with_parts(0 if dropped else PREFIX - 100, PREFIX if dropped else 100)
        billed += used
        run.answer("", call(f"c{step}"), usage=used)
        if run.state.status.is_terminal:
            break
        run.returns(f"c{step}", "")
        step += 1
    assert CLAUDE.cost(billed) <= 1.0
    assert run.state.stop_reason is StopReason.COST_LIMIT
