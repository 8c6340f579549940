"""Where the loop looks at limits and signals, and what the next call may still use (docs/spec.md, sections 4 and 5)."""

from __future__ import annotations

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.hooks import Changes, Trigger
from holdfast.core.agent.initial_state import new_agent
from holdfast.core.agent.policies import ContextPolicy, SummaryPolicy
from holdfast.core.base.bounds import OUTPUT_TOKENS_MAX
from holdfast.core.base.errors import ModelFailure
from holdfast.core.base.frozen import replace
from holdfast.core.base.retries import BUDGET_SPENT, allowed_output
from holdfast.core.base.usage import NOTHING_USED, Prices, Usage
from holdfast.core.conversation.messages import user_message
from holdfast.core.conversation.steps import ErrorRecord, InferenceResponse
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.commands import CallModel, CallTool, SummariseBuffer
from holdfast.core.loop.events import BufferSummarised, ModelAnswered, ModelFailed, SummaryFailed
from tests.core.building import AGENT_ID, BOOM, COMPLETED, DEFINITION, FAILED, START, USAGE, Run, call, moment, stopped
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
    run = Ruled(PRICED, budget=ExecutionBudget(max_cost=2)).begin()
    first = run.state.running.next_input_max
    assert run.model_call.max_output_tokens == int((2 - first / 1_000) * 100), "what is left after the input"
    run.answer("", call("a"), usage=COSTS_30_CENTS).returns("a")
    second = run.state.running.next_input_max
    assert second > 100, "the input there is already, and what was said since"
    assert run.model_call.max_output_tokens == int((1.7 - second / 1_000) * 100)


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
    assert "its cost counts as 0" in run.state.warnings[0]


@pytest.mark.parametrize(("asked", "answered"), [("tiny", "tiny-2026-01-01"), (None, "tiny")])
def test_the_warning_of_an_unknown_price_names_the_model_as_far_as_it_is_known(
    asked: str | None, answered: str
) -> None:
    run = Ruled(replace(DEFINITION, llm=LLM(model=asked))).begin()
    for text in ("", "done"):
        response = InferenceResponse(text=text, tool_calls=() if text else (call("a"),), usage=USAGE, model=answered)
        run.feed(ModelAnswered(response, run.tick()))
        if not text:
            run.returns("a")
    (told,) = run.state.warnings
    assert "no price is known for model 'tiny'" in told


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
    (asked,) = run.wanted(SummariseBuffer)
    assert asked.max_output_tokens is not None
    assert used.total_tokens <= 3_000 + asked.max_output_tokens, "it keeps to what it was told"
    run.feed(BufferSummarised("what was said", used, run.tick()))
    return run


def test_a_summary_that_spends_the_last_tokens_leaves_no_call_to_make() -> None:
    run = summarised(Usage(input_tokens=2_400, output_tokens=1_800), ExecutionBudget(max_tokens=5_000))
    assert run.wanted(CallModel) == ()
    assert (run.ended, run.state.usage.total_tokens) == (stopped(StopReason.TOKEN_LIMIT), 4_650)


def test_a_summary_that_leaves_room_is_followed_by_its_call() -> None:
    run = summarised(Usage(input_tokens=2_400, output_tokens=100), ExecutionBudget(max_tokens=5_000))
    assert run.model_call.max_output_tokens == 5_000 - 450 - 2_500 - run.state.running.next_input_max


def test_after_a_summary_the_next_input_is_not_taken_for_as_long_as_the_last_one() -> None:
    run = Ruled(SUMMARISING, budget=ExecutionBudget(max_tokens=1_000_000)).begin()
    run.answer("", call("a"), usage=Usage(input_tokens=90_000)).returns("a").summarises("all that")
    assert run.state.running.next_input_max < 1_000


def test_a_summary_that_the_budget_has_no_room_for_is_not_asked_for() -> None:
    run = Ruled(SUMMARISING, budget=ExecutionBudget(max_tokens=1_500)).begin()
    run.answer("", call("a"), usage=Usage(input_tokens=400, output_tokens=50)).returns("a")
    assert run.wanted(SummariseBuffer) == ()
    assert run.model_call.step_number == 2


def test_attempts_of_a_summary_that_failed_count_whether_it_succeeds_or_not() -> None:
    for ended in (
        BufferSummarised("what was said", NOTHING_USED, moment(9), failed_usage=USAGE),
        SummaryFailed(BOOM, moment(9), failed_usage=USAGE),
    ):
        run = Ruled(SUMMARISING).begin().answer("", call("a"), usage=Usage(input_tokens=400)).returns("a")
        run.feed(ended)
        assert run.state.usage == Usage(input_tokens=400) + USAGE


def test_attempts_that_failed_leave_the_next_one_less_to_put_out() -> None:
    asked = Ruled(PRICED, budget=ExecutionBudget(max_tokens=2_000)).begin().model_call
    room = asked.room
    assert room is not None
    assert asked.max_output_tokens == room
    assert allowed_output(asked, NOTHING_USED) == room
    assert allowed_output(asked, Usage(input_tokens=100, output_tokens=9)) == room - 109
    with pytest.raises(ModelFailure, match="the budget has nothing left for the model call: its failed attempts used"):
        allowed_output(asked, Usage(output_tokens=room))


def test_attempts_that_failed_and_leave_nothing_for_another_end_the_run_by_its_budget() -> None:
    run = Ruled(PRICED, budget=ExecutionBudget(max_tokens=2_000)).begin()
    run.model_fails(ErrorRecord(type=BUDGET_SPENT, message="nothing left", source="model"), Usage(input_tokens=1_990))
    assert run.ended == stopped(StopReason.TOKEN_LIMIT)
    assert run.state.usage.total_tokens == 1_990


def test_what_hooks_say_before_the_call_counts_before_it_is_made() -> None:
    said = Changes(messages=(user_message("x" * 5_000),))
    run = Ruled(budget=ExecutionBudget(max_tokens=5_000), hooks={Trigger.BEFORE_INFERENCE: said}).begin()
    assert run.model_call.max_output_tokens == 2_500, "a first call's input leaves its answer half of the budget"
    run.answer("", call("a")).returns("a")
    assert run.wanted(CallModel) == ()
    assert run.ended == stopped(StopReason.TOKEN_LIMIT)


def test_a_subagents_first_call_keeps_the_whole_of_its_input_so_that_no_tree_passes_its_root() -> None:
    budget = ExecutionBudget(max_tokens=200)
    run = Ruled(budget=budget)
    run.state = new_agent(DEFINITION, agent_id=AGENT_ID, at=START, parent_agent_id=AGENT_ID)
    assert run.begin().ended == stopped(StopReason.TOKEN_LIMIT)
    run = Ruled(replace(DEFINITION, budget_policy="own"), budget=budget)
    run.state = new_agent(DEFINITION, agent_id=AGENT_ID, at=START, parent_agent_id=AGENT_ID)
    assert run.begin().model_call.max_output_tokens == 100, "a budget of its own is its own"


def test_a_token_limit_that_a_hook_may_override_does_not_clamp_the_call_below_one_token() -> None:
    definition = replace(DEFINITION, overridable=(StopReason.TOKEN_LIMIT,))
    run = Ruled(definition, budget=ExecutionBudget(max_tokens=100), hooks={Trigger.BEFORE_STEP: Changes(go_on=True)})
    run.begin().answer("", call("a")).returns("a")
    assert run.model_call.max_output_tokens == OUTPUT_TOKENS_MAX


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


def test_a_call_that_nothing_limits_has_a_bound_all_the_same() -> None:
    assert Run().begin().model_call.max_output_tokens == OUTPUT_TOKENS_MAX
    assert Run(llm=LLM(max_output_tokens=50_000)).begin().model_call.max_output_tokens == 50_000
    clamped = Run(ExecutionBudget(max_tokens=10_000)).begin().model_call.max_output_tokens
    assert clamped is not None
    assert clamped < 10_000


def test_a_summary_has_a_bound_too() -> None:
    run = Ruled(SUMMARISING).begin()
    run.answer("", call("a"), usage=Usage(input_tokens=400, output_tokens=50)).returns("a")
    [command] = run.wanted(SummariseBuffer)
    assert command.max_output_tokens == OUTPUT_TOKENS_MAX


def test_the_longest_answer_of_its_model_bounds_a_call_and_stands_in_for_what_the_definition_leaves_out() -> None:
    assert Run(llm=LLM(longest_answer=32_000)).begin().model_call.max_output_tokens == 32_000
    assert Run(llm=LLM(longest_answer=100, max_output_tokens=500)).begin().model_call.max_output_tokens == 100
    assert Run(llm=LLM(longest_answer=500, max_output_tokens=100)).begin().model_call.max_output_tokens == 100
    clamped = Run(ExecutionBudget(max_tokens=10_000), llm=LLM(longest_answer=32_000)).begin().model_call
    assert clamped.max_output_tokens is not None
    assert clamped.max_output_tokens < 10_000


def test_a_lost_call_counts_no_more_than_the_longest_answer_of_its_model() -> None:
    run = Run(llm=LLM(longest_answer=100, prices=Prices(input_usd=1, output_usd=1))).begin()
    run.feed(ModelFailed(BOOM, run.tick(), lost=True))
    assert run.state.usage.output_tokens == 100
