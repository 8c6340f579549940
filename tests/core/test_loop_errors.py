"""Errors that end a run and those that do not, cost, and the limit on cost (docs/spec.md, sections 2 and 5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM
from holdfast.core.base.bounds import OUTPUT_TOKENS_MAX
from holdfast.core.base.usage import TOKENS_PRICED, Prices, Usage
from holdfast.core.conversation.amounts import UNKNOWN_PRICE
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.commands import CallTool, Finish
from tests.core.building import BOOM, COMPLETED, FAILED, Run, call, stopped

PRICES = Prices(input_usd=10.0, output_usd=100.0)
PRICED = LLM(prices=PRICES)


def test_by_default_a_run_recovers_from_a_tools_error() -> None:
    run = Run().begin().answer("", call("a")).fails("a").answer("anyway")
    assert run.ended == COMPLETED
    assert run.state.errors == (BOOM,)


def test_where_errors_are_fatal_the_step_with_one_is_the_last() -> None:
    run = Run(errors="fatal").begin().answer("", call("a"), call("b")).fails("a")
    assert not run.commands, "the other call is not cut off"
    run.returns("b")
    assert list(run.commands) == [Finish()]
    assert run.ended == FAILED
    assert run.state.errors == (BOOM,)
    assert run.state.step_count == 1


def test_where_errors_are_fatal_so_is_an_unknown_tool() -> None:
    assert Run(errors="fatal").begin().answer("", call("a", "nope")).ended == FAILED


def test_a_stop_in_a_step_with_an_error_fails_where_errors_are_fatal() -> None:
    run = Run(errors="fatal").begin().answer("", call("a"), call("b")).fails("a").stop()
    assert run.ended == FAILED
    assert run.signals == ["user_requested", "error"]


def test_blocked_denied_and_cancelled_calls_are_no_errors() -> None:
    run = Run(errors="fatal").begin().answer("", call("a")).stop()
    assert run.ended == stopped(StopReason.USER_REQUESTED)


def test_tokens_of_failed_attempts_count() -> None:
    run = Run(llm=PRICED).begin().answer("done", wasted=Usage(input_tokens=1_000))
    assert run.state.usage == Usage(input_tokens=1_100, output_tokens=20)
    assert run.state.last_step_usage == run.state.usage
    assert run.state.cost == pytest.approx(PRICES.cost(run.state.usage))
    run = Run(llm=PRICED).begin().model_fails(wasted=Usage(input_tokens=1_000))
    assert run.state.usage == run.state.last_step_usage == Usage(input_tokens=1_000)
    assert run.state.cost == pytest.approx(0.01)


def test_an_answer_costs_what_the_definitions_prices_say() -> None:
    run = Run(llm=PRICED).begin().answer("done")
    assert run.state.cost == pytest.approx(100 * 10 / 1e6 + 20 * 100 / 1e6)
    assert run.state.warnings == ()


def test_a_cost_that_is_told_with_the_answer_counts_before_any_price() -> None:
    assert Run(llm=PRICED).begin().answer("done", cost=0.5).state.cost == 0.5


def test_an_unknown_price_costs_nothing_and_is_told_once() -> None:
    run = Run(ExecutionBudget(max_cost=1.0)).begin().answer("", call("a")).returns("a").answer("done")
    assert run.ended == COMPLETED
    assert run.state.cost == 0.0
    (told,) = run.state.warnings
    assert told.startswith(UNKNOWN_PRICE)


def test_an_answer_without_usage_warns_of_nothing() -> None:
    run = Run().begin().answer("done", usage=Usage())
    assert run.state.warnings == ()
    assert run.state.usage.total_tokens == 0


def test_a_provider_that_reports_no_usage_is_never_over_a_budget() -> None:
    run = Run(ExecutionBudget(max_tokens=1_000)).begin()
    for _ in range(3):
        run.answer("", call("a"), usage=Usage()).returns("a")
    assert run.answer("done", usage=Usage()).ended == COMPLETED


def test_no_money_means_no_step() -> None:
    run = Run(ExecutionBudget(max_cost=0)).begin()
    assert run.ended == stopped(StopReason.COST_LIMIT)
    assert run.state.step_count == 0


def test_spent_money_stops_before_the_asked_tools_start() -> None:
    run = Run(ExecutionBudget(max_cost=0.003), llm=PRICED).begin().answer("", call("a"))
    assert run.wanted(CallTool) == ()
    assert run.ended == stopped(StopReason.COST_LIMIT)
    assert run.outcomes == [("a", "cancelled")]
    assert run.state.stop_signal is not None
    assert run.state.stop_signal.message == "max_cost 0.003 USD reached"


def test_a_whole_answer_that_spends_the_last_cent_is_an_answer() -> None:
    assert Run(ExecutionBudget(max_cost=0.003), llm=PRICED).begin().answer("done").ended == COMPLETED


def test_the_output_is_clamped_to_what_the_money_still_pays() -> None:
    run = Run(ExecutionBudget(max_cost=0.02), llm=PRICED).begin()
    assert run.model_call.max_output_tokens == int((2_000 - run.state.running.next_input_max) / 10)
    run.answer("", call("a")).returns("a")
    read_again = run.state.running.next_input_max
    assert run.model_call.max_output_tokens == int((1_700 - read_again) / 10), "300 used, the rest for the next call"


def test_a_call_whose_input_alone_passes_the_money_is_not_made() -> None:
    run = Run(ExecutionBudget(max_cost=0.004), llm=PRICED).begin().answer("", call("a")).returns("a")
    assert run.ended == stopped(StopReason.COST_LIMIT)
    assert run.state.stop_signal is not None
    assert (
        run.state.stop_signal.message
        == "max_cost 0.004 USD leaves no room after 0.003000 for a call whose input can have 300 tokens"
    )


def test_of_tokens_and_money_spent_together_the_first_signal_decides() -> None:
    run = Run(ExecutionBudget(max_tokens=120, max_cost=0.003), llm=PRICED).begin().answer("", call("a"))
    assert run.signals == ["token_limit", "cost_limit"]
    assert run.ended == stopped(StopReason.TOKEN_LIMIT)


def test_output_that_is_free_is_not_clamped_by_money() -> None:
    free = LLM(prices=Prices(input_usd=10, output_usd=0))
    assert Run(ExecutionBudget(max_cost=0.01), llm=free).begin().model_call.max_output_tokens == OUTPUT_TOKENS_MAX


@given(
    max_tokens=st.none() | st.integers(1, 3_000),
    max_cost=st.none() | st.floats(0.0001, 0.2),
    steps=st.lists(st.tuples(st.integers(0, 300), st.floats(0, 1), st.booleans()), min_size=1, max_size=12),
)
def test_budgets_hold_with_a_provider_that_honours_the_clamp(
    max_tokens: int | None, max_cost: float | None, steps: list[tuple[int, float, bool]]
) -> None:
    """They are passed by what the last call's input had grown by at the most: nobody knows that before the call."""
    run = Run(ExecutionBudget(max_tokens=max_tokens, max_cost=max_cost), llm=PRICED).begin()
    known = 0
    for growth, wordy, fails in steps:
        if run.state.status.is_terminal:
            break
        most = run.model_call.max_output_tokens
        usage = Usage(input_tokens=known + growth, output_tokens=int(wordy * (1_000 if most is None else most)))
        known += growth
        run.answer("", call("a"), usage=usage)
        assert max_tokens is None or run.state.usage.total_tokens <= max_tokens + growth
        over = PRICES.cost(Usage(input_tokens=growth)) + PRICES.output_usd / TOKENS_PRICED
        assert max_cost is None or run.state.cost <= max_cost + over
        if run.called:
            run.fails("a") if fails else run.returns("a")
