"""Where the loop looks at limits and signals, and what the next call may still use (SPEC sections 4 and 5)."""

from __future__ import annotations

import pytest

from holdfast.core.budget import ExecutionBudget
from holdfast.core.commands import CallModel, CallTool, SummariseBuffer
from holdfast.core.definition import LLM
from holdfast.core.events import BufferSummarised, ModelAnswered, ModelFailed
from holdfast.core.frozen import replace
from holdfast.core.hooks import Changes, Trigger
from holdfast.core.policies import ContextPolicy, SummaryPolicy
from holdfast.core.steps import InferenceResponse
from holdfast.core.stopping import StopReason
from holdfast.core.usage import Prices, Usage
from tests.core.building import BOOM, COMPLETED, DEFINITION, FAILED, USAGE, Run, call, moment, stopped
from tests.core.ruled import Ruled, triggered

PRICED = replace(DEFINITION, llm=LLM(prices=Prices(input_usd=1_000, output_usd=10_000)))
"""An input token costs a tenth of a cent, an output token a cent."""

COSTS_30_CENTS = Usage(input_tokens=100, output_tokens=20)


@pytest.mark.parametrize(
    ("trigger", "model_calls", "tool_calls", "steps"),
    [
        (Trigger.BEFORE_EXECUTION, 0, 0, 0),
        (Trigger.BEFORE_STEP, 0, 0, 0),
        (Trigger.BEFORE_INFERENCE, 1, 0, 1),
        (Trigger.AFTER_INFERENCE, 1, 0, 1),
        (Trigger.BEFORE_TOOL, 1, 1, 1),
        (Trigger.AFTER_TOOL, 1, 1, 1),
        (Trigger.AFTER_STEP, 1, 1, 1),
    ],
)
def test_a_signal_is_heeded_at_the_next_checkpoint(
    trigger: Trigger, model_calls: int, tool_calls: int, steps: int
) -> None:
    run = Ruled(hooks={trigger: Changes(stop="that will do")}).begin()
    asked = len(run.wanted(CallModel))
    called = 0
    if asked:
        run.answer("", call("a"))
        called = len(run.wanted(CallTool))
    if called:
        run.returns("a")
    assert (asked, called, run.state.step_count) == (model_calls, tool_calls, steps)
    assert run.ended == stopped(StopReason.STOP_REQUESTED)


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (ExecutionBudget(max_steps=0), StopReason.STEPS_LIMIT),
        (ExecutionBudget(max_tokens=0), StopReason.TOKEN_LIMIT),
        (ExecutionBudget(max_seconds=0), StopReason.TIME_LIMIT),
        (ExecutionBudget(max_cost=0), StopReason.COST_LIMIT),
        (ExecutionBudget(deadline=moment(0)), StopReason.TIME_LIMIT),
    ],
)
def test_a_zero_limit_allows_no_step_and_names_itself(budget: ExecutionBudget, reason: StopReason) -> None:
    run = Ruled(budget=budget).begin()
    assert run.wanted(CallModel) == ()
    assert (run.state.step_count, run.ended) == (0, stopped(reason))


def test_spent_money_stops_before_the_asked_tools_start() -> None:
    run = Ruled(PRICED, budget=ExecutionBudget(max_cost=0.3)).begin().answer("", call("a"), usage=COSTS_30_CENTS)
    assert run.wanted(CallTool) == ()
    assert run.state.cost == pytest.approx(0.3)
    assert (run.ended, run.outcomes) == (stopped(StopReason.COST_LIMIT), [("a", "cancelled")])


def test_money_below_the_limit_does_not_stop() -> None:
    run = Ruled(PRICED, budget=ExecutionBudget(max_cost=0.31)).begin().answer("", call("a"), usage=COSTS_30_CENTS)
    assert run.called == ["a"]


def test_the_output_is_clamped_to_what_the_money_left_pays() -> None:
    run = Ruled(PRICED, budget=ExecutionBudget(max_cost=1)).begin()
    assert run.model_call.max_output_tokens == 100
    run.answer("", call("a"), usage=COSTS_30_CENTS).returns("a")
    assert run.model_call.max_output_tokens == 60, "10 cents of the 70 left go to the input there is already"


@pytest.mark.parametrize("output_usd", [10_000, 0])
def test_a_call_whose_input_alone_costs_too_much_is_not_made(output_usd: float) -> None:
    llm = LLM(prices=Prices(input_usd=1_000, output_usd=output_usd))
    run = Ruled(replace(DEFINITION, llm=llm), budget=ExecutionBudget(max_cost=0.15)).begin()
    run.answer("", call("a"), usage=Usage(input_tokens=100)).returns("a")
    assert run.wanted(CallModel) == ()
    assert (run.state.step_count, run.ended) == (1, stopped(StopReason.COST_LIMIT))


def test_tokens_of_failed_attempts_count_whether_the_call_succeeds_or_not() -> None:
    wasted = Usage(input_tokens=90)
    run = Ruled(PRICED).begin()
    run.feed(ModelAnswered(InferenceResponse(text="", tool_calls=(call("a"),), usage=USAGE), run.tick(), wasted))
    assert run.state.usage == USAGE + wasted
    assert run.state.cost == pytest.approx(0.39)
    run.returns("a")
    run.feed(ModelFailed(BOOM, run.tick(), wasted))
    assert (run.state.usage, run.state.last_step_usage) == (USAGE + wasted + wasted, wasted)
    assert run.ended == FAILED


def test_tokens_of_failed_attempts_can_reach_the_limit() -> None:
    run = Ruled(budget=ExecutionBudget(max_tokens=200)).begin()
    response = InferenceResponse(text="", tool_calls=(call("a"),), usage=USAGE)
    run.feed(ModelAnswered(response, run.tick(), Usage(input_tokens=80)))
    assert run.ended == stopped(StopReason.TOKEN_LIMIT)


def test_an_unknown_price_costs_nothing_and_is_told_once() -> None:
    run = Ruled(budget=ExecutionBudget(max_cost=0.01)).begin().answer("", call("a")).returns("a").answer("done")
    assert (run.ended, run.state.cost) == (COMPLETED, 0)
    assert len(run.state.warnings) == 1
    assert "the cost counts as zero" in run.state.warnings[0]


def test_a_known_price_needs_no_warning() -> None:
    assert Ruled(PRICED).begin().answer("done").state.warnings == ()


def test_a_cost_that_the_provider_tells_is_believed_before_the_prices() -> None:
    run = Ruled(PRICED).begin()
    run.feed(ModelAnswered(InferenceResponse(text="done", usage=USAGE, cost=5), run.tick()))
    assert (run.state.cost, run.state.warnings) == (5, ())


SUMMARISING = replace(DEFINITION, context=ContextPolicy(summary=SummaryPolicy(above_input_tokens=100, keep_messages=0)))


def summarised(used: Usage, budget: ExecutionBudget) -> Run:
    run = Ruled(SUMMARISING, budget=budget).begin()
    run.answer("", call("a"), usage=Usage(input_tokens=400, output_tokens=50)).returns("a")
    assert len(run.wanted(SummariseBuffer)) == 1
    run.feed(BufferSummarised("what was said", used, run.tick()))
    return run


def test_a_summary_that_spends_the_last_tokens_leaves_no_call_to_make() -> None:
    run = summarised(Usage(input_tokens=400, output_tokens=100), ExecutionBudget(max_tokens=1_000))
    assert run.wanted(CallModel) == ()
    assert (run.ended, run.state.usage.total_tokens) == (stopped(StopReason.TOKEN_LIMIT), 950)


def test_a_summary_that_leaves_room_is_followed_by_its_call() -> None:
    run = summarised(Usage(input_tokens=100), ExecutionBudget(max_tokens=1_000))
    assert run.model_call.max_output_tokens == 50


def test_a_token_limit_that_a_hook_may_override_does_not_clamp_the_call_below_one_token() -> None:
    definition = replace(DEFINITION, overridable=(StopReason.TOKEN_LIMIT,))
    run = Ruled(definition, budget=ExecutionBudget(max_tokens=100), hooks={Trigger.BEFORE_STEP: Changes(go_on=True)})
    run.begin().answer("", call("a")).returns("a")
    assert run.model_call.max_output_tokens is None


def test_tokens_used_before_a_stop_are_counted() -> None:
    assert Ruled().begin().answer("", call("a")).stop().state.usage == USAGE
    assert Ruled().begin().answer("", call("a")).returns("a").stop().state.usage == USAGE


def test_what_is_left_of_the_budget_can_be_read_all_the_time() -> None:
    budget = ExecutionBudget(max_steps=20, max_tokens=10_000, max_seconds=60, max_cost=1, deadline=moment(99))
    state = Ruled(replace(PRICED, budget=budget)).begin().answer("", call("a"), usage=COSTS_30_CENTS).returns("a").state
    assert state.budget == budget
    left = state.budget_remaining
    assert left.max_cost == pytest.approx(0.7)
    assert (left.max_steps, left.max_tokens, left.max_seconds, left.deadline) == (19, 9_880, 58, moment(99))


def test_a_signal_before_the_execution_keeps_the_first_step_from_beginning() -> None:
    run = Ruled(hooks={Trigger.BEFORE_EXECUTION: Changes(stop="enough"), Trigger.BEFORE_STEP: None}).begin()
    assert triggered(run) == [Trigger.BEFORE_EXECUTION]
