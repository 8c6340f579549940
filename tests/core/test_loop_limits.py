"""The loop and its budget: steps, tokens, time (docs/spec.md, section 5)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import Trigger
from holdfast.core.agent.policies import ContextPolicy, SummaryPolicy
from holdfast.core.agent.token_bounds import messages_tokens
from holdfast.core.base.bounds import OUTPUT_TOKENS_MAX
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.commands import CallModel, CallTool, CancelInFlight, Finish, StartTimer, SummariseBuffer
from holdfast.core.loop.events import HooksReturned, TimerFired
from tests.core.building import COMPLETED, Run, call, hook_at, moment, stopped


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_max_steps_allows_exactly_that_many_steps(limit: int) -> None:
    run = Run(ExecutionBudget(max_steps=limit)).begin()
    model_calls = 0
    while run.wanted(CallModel):
        model_calls += 1
        run.answer("more", call("a")).returns("a")
    assert model_calls == run.state.step_count == limit
    assert run.ended == stopped(StopReason.STEPS_LIMIT)
    assert run.commands == (Finish(),)


def test_the_last_step_allowed_may_give_the_final_answer() -> None:
    run = Run(ExecutionBudget(max_steps=2)).begin().answer("", call("a")).returns("a").answer("done")
    assert run.ended == COMPLETED


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        (ExecutionBudget(max_steps=0), StopReason.STEPS_LIMIT),
        (ExecutionBudget(max_tokens=0), StopReason.TOKEN_LIMIT),
        (ExecutionBudget(max_seconds=0), StopReason.TIME_LIMIT),
        (ExecutionBudget(deadline=moment(0)), StopReason.TIME_LIMIT),
        (ExecutionBudget(deadline=moment(1)), StopReason.TIME_LIMIT),
        (ExecutionBudget(max_tokens=0, max_seconds=0), StopReason.TOKEN_LIMIT),
        (ExecutionBudget(max_steps=0, max_tokens=0, max_seconds=0), StopReason.STEPS_LIMIT),
    ],
)
def test_a_spent_budget_stops_before_the_first_call(budget: ExecutionBudget, reason: StopReason) -> None:
    run = Run(budget).begin()
    assert run.commands == (Finish(),)
    assert run.ended == stopped(reason)
    assert run.state.step_count == 0
    assert [m.role for m in run.state.messages] == ["user"]


def test_every_limit_that_is_reached_leaves_its_signal() -> None:
    run = Run(ExecutionBudget(max_steps=0, max_tokens=0, max_seconds=0)).begin()
    reasons = [signal.reason for signal in run.state.running.continuation.stop_signals]
    assert reasons == [StopReason.STEPS_LIMIT, StopReason.TOKEN_LIMIT, StopReason.TIME_LIMIT]


def test_a_signal_of_the_budget_names_the_limit_and_its_value() -> None:
    run = Run(ExecutionBudget(max_steps=0, max_tokens=0, max_seconds=0)).begin()
    told = [signal.message for signal in run.state.running.continuation.stop_signals]
    assert told == ["max_steps 0 reached", "max_tokens 0 reached", "max_seconds 0 reached"]
    assert {signal.source for signal in run.state.running.continuation.stop_signals} == {"budget"}


def test_spent_tokens_stop_before_the_asked_tools_start() -> None:
    run = Run(ExecutionBudget(max_tokens=120)).begin().answer("", call("a"), call("b"))
    assert run.wanted(CallTool) == ()
    assert run.ended == stopped(StopReason.TOKEN_LIMIT)
    assert run.outcomes == [("a", "cancelled"), ("b", "cancelled")]
    assert run.answers["a"] == "Error (Cancelled): the run was stopped (token_limit: max_tokens 120 reached)"


def test_tokens_below_the_limit_do_not_stop() -> None:
    run = Run(ExecutionBudget(max_tokens=121)).begin().answer("", call("a"))
    assert run.called == ["a"]


def test_a_whole_answer_that_spends_the_last_token_is_an_answer() -> None:
    run = Run(ExecutionBudget(max_tokens=120)).begin().answer("done")
    assert run.ended == COMPLETED


def test_an_answer_cut_short_by_the_token_limit_says_so() -> None:
    run = Run(ExecutionBudget(max_tokens=120)).begin().answer("I was about to s", finish_reason="length")
    assert run.ended == stopped(StopReason.TOKEN_LIMIT)
    assert run.state.current_response == "I was about to s"


def test_an_answer_cut_by_the_providers_own_limit_is_not_a_spent_budget() -> None:
    run = Run(ExecutionBudget(max_tokens=1_000)).begin().answer("I was about to s", finish_reason="length")
    assert run.ended == (ExecutionStatus.COMPLETED, StopReason.FINISH_REASON)
    assert run.signals == ["finish_reason"]


def test_the_output_is_clamped_to_the_tokens_that_are_left() -> None:
    run = Run(ExecutionBudget(max_tokens=1_000)).begin()
    assert run.model_call.max_output_tokens == 1_000 - run.state.running.next_input_max
    run.answer("", call("a"), usage=Usage(input_tokens=300, output_tokens=100)).returns("a")
    said = messages_tokens(run.state.messages[-2:])
    assert run.model_call.max_output_tokens == 300 - said, "300 of the 600 left are read again, and what was said since"


def test_the_input_of_a_first_call_leaves_its_answer_half_of_a_small_budget() -> None:
    run = Run(ExecutionBudget(max_tokens=100)).begin()
    assert run.state.running.next_input_max > 100
    assert run.model_call.max_output_tokens == 50


def test_an_answer_cut_at_half_says_why_and_the_next_call_may_use_all_that_is_left() -> None:
    run = Run(ExecutionBudget(max_tokens=120)).begin()
    assert run.model_call.max_output_tokens == 60
    run.answer("so far", finish_reason="length", usage=Usage(input_tokens=32, output_tokens=60))
    (told,) = (each.message for each in run.state.running.continuation.stop_signals if each.source == "budget")
    assert told == (
        "max_tokens 120 allowed this answer no more than 60 tokens: half is kept for the input of a first call, which "
        "nobody knows before it is counted"
    )
    later = Run(ExecutionBudget(max_tokens=2_000)).begin()
    later.answer("", call("a"), usage=Usage(input_tokens=32, output_tokens=60)).returns("a")
    said = messages_tokens(later.state.messages[-2:])
    assert later.model_call.max_output_tokens == 2_000 - (32 + 60) - (32 + said), "the input was counted"


def test_a_call_whose_input_alone_passes_the_budget_is_not_made() -> None:
    run = Run(ExecutionBudget(max_tokens=300)).begin()
    run.answer("", call("a"), usage=Usage(input_tokens=150, output_tokens=10)).returns("a")
    assert run.state.stop_reason is StopReason.TOKEN_LIMIT
    assert run.state.step_count == 1


@pytest.mark.parametrize(
    ("own", "left", "clamp"), [(50, None, 50), (50, 180, 50), (80, 150, 75), (None, None, OUTPUT_TOKENS_MAX)]
)
def test_the_output_is_clamped_to_the_tighter_of_definition_and_budget(
    own: int | None, left: int | None, clamp: int | None
) -> None:
    run = Run(ExecutionBudget(max_tokens=left), llm=LLM(max_output_tokens=own)).begin()
    assert run.model_call.max_output_tokens == clamp


def test_a_time_limit_starts_one_timer_for_the_earliest_moment() -> None:
    run = Run(ExecutionBudget(max_seconds=60, deadline=moment(30))).begin()
    assert run.wanted(StartTimer) == (StartTimer(fires_at=moment(30)),)
    run = Run(ExecutionBudget(max_seconds=10, deadline=moment(30))).begin()
    assert run.wanted(StartTimer) == (StartTimer(fires_at=moment(11)),)
    run.answer("", call("a")).returns("a")
    assert run.wanted(StartTimer) == ()


def test_without_a_time_limit_there_is_no_timer() -> None:
    assert Run(ExecutionBudget(max_steps=3, max_tokens=1_000)).begin().wanted(StartTimer) == ()


def test_the_time_limit_during_a_model_call_cancels_it_and_stops() -> None:
    run = Run(ExecutionBudget(max_seconds=5)).begin().timer(after=5)
    assert run.commands == (CancelInFlight(), Finish())
    assert run.ended == stopped(StopReason.TIME_LIMIT)
    assert run.state.step_count == 0
    assert run.state.stop_signal is not None
    assert run.state.stop_signal.message == "max_seconds 5 reached"


def test_the_time_limit_during_tools_cancels_the_rest_and_keeps_what_returned() -> None:
    run = Run(ExecutionBudget(max_seconds=5)).begin().answer("", call("a"), call("b")).returns("b", "kept").timer(5)
    assert run.ended == stopped(StopReason.TIME_LIMIT)
    assert run.outcomes == [("a", "cancelled"), ("b", "succeeded")]
    assert run.answers == {
        "a": "Error (Cancelled): the run was stopped (time_limit: max_seconds 5 reached)",
        "b": "kept",
    }


def test_a_deadline_that_struck_is_named() -> None:
    run = Run(ExecutionBudget(max_seconds=60, deadline=moment(5))).begin().timer(after=5)
    assert run.state.stop_signal is not None
    assert run.state.stop_signal.message == f"deadline {moment(5)} passed"


@pytest.mark.parametrize("budget", [ExecutionBudget(deadline=moment(60)), ExecutionBudget(max_seconds=60)])
def test_a_timer_that_fires_a_moment_early_stops_nothing(budget: ExecutionBudget) -> None:
    run = Run(budget).begin()
    strikes_at = run.wanted(StartTimer)[0].fires_at
    before = run.state
    run.feed(TimerFired(strikes_at - timedelta(milliseconds=1)))
    assert run.state is before, "a timer from before a pause"
    run.feed(TimerFired(strikes_at))
    assert run.ended == stopped(StopReason.TIME_LIMIT)


def test_time_that_is_up_between_two_steps_stops_without_the_timer() -> None:
    run = Run(ExecutionBudget(max_seconds=5)).begin().answer("", call("a"), after=10).returns("a")
    assert run.ended == stopped(StopReason.TIME_LIMIT)
    assert run.state.step_count == 1


def test_the_state_tells_what_is_left_of_the_budget() -> None:
    budget = ExecutionBudget(max_steps=20, max_tokens=10_000, max_seconds=60, deadline=moment(100))
    run = Run(budget).begin().answer("", call("a"), usage=Usage(input_tokens=2_900, output_tokens=100)).returns("a")
    assert run.state.budget == budget
    assert run.state.budget_remaining == ExecutionBudget(
        max_steps=19, max_tokens=7_000, max_seconds=58, deadline=moment(100)
    )


def test_each_execution_counts_from_its_own_start() -> None:
    run = Run(ExecutionBudget(max_steps=1, max_tokens=200, max_seconds=10)).begin().answer("one")
    run.tick(100)
    run.begin()
    assert run.state.status is ExecutionStatus.IN_PROGRESS
    assert run.answer("two").ended == COMPLETED


def test_the_longest_time_limit_that_is_accepted_can_be_run() -> None:
    for seconds in (1e9, 1e12, 1e18):
        try:
            budget = ExecutionBudget(max_seconds=seconds)
        except ValueError:
            continue  # refused as a value is fine; accepted and then unable to begin is not
        assert Run(budget).begin().state.status is ExecutionStatus.IN_PROGRESS


def test_no_summary_is_begun_after_the_time_limit_though_its_timer_comes_late() -> None:
    policy = ContextPolicy(summary=SummaryPolicy(above_input_tokens=10, keep_messages=1))
    run = Run(ExecutionBudget(max_seconds=60), hooks=[hook_at(Trigger.BEFORE_INFERENCE)], context=policy).begin()
    run.hooked().answer("", call("a")).returns("a")
    run.hooked().answer("", call("b")).returns("b")
    in_time = run.state
    assert run.hooked().wanted(SummariseBuffer)
    run.state = in_time
    run.feed(HooksReturned(Trigger.BEFORE_INFERENCE, None, (), run.tick(100)))
    assert run.wanted(SummariseBuffer) == ()
    assert run.ended == stopped(StopReason.TIME_LIMIT)
