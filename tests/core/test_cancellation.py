"""The loop while it awaits the ends of what it has cancelled: partial answers, usage (docs/spec.md, section 4)."""

from __future__ import annotations

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.policies import ContextPolicy, SummaryPolicy
from holdfast.core.agent.state import AgentState
from holdfast.core.base.usage import Prices, Usage
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import InferenceResponse, Outcome
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.commands import CancelInFlight, Finish, SummariseBuffer
from holdfast.core.loop.events import (
    BufferSummarised,
    ModelAnswered,
    ModelCancelled,
    ModelFailed,
    RunContinued,
    SummaryFailed,
    TimerFired,
)
from tests.core.building import BOOM, Run, call, spawn, stopped

USER = stopped(StopReason.USER_REQUESTED)
PARTIAL = InferenceResponse(
    text="As far as I", usage=Usage(input_tokens=30, output_tokens=4), finish_reason="cancelled"
)
HELPER = AgentDefinition(name="helper")
PRICED = LLM(prices=Prices(input_usd=1, output_usd=10))


def cancelling(run: Run) -> Run:
    """Begin a run whose driver reports what it cancels by itself."""
    run.grace = True
    return run.begin()


def test_a_stop_waits_for_what_had_come_of_the_answer_and_keeps_it() -> None:
    run = cancelling(Run(llm=PRICED)).stop("enough")
    assert run.commands == (CancelInFlight(),)
    assert run.state.status is ExecutionStatus.IN_PROGRESS
    run.feed(ModelCancelled(PARTIAL, run.tick(), failed_usage=Usage(input_tokens=30)))
    assert run.wanted(Finish) == (Finish(),)
    assert run.ended == USER
    step = run.state.running.current_step
    assert step is not None
    assert step.partial_response is not None
    assert (step.partial_response.text, run.state.step_count) == ("As far as I", 0)
    assert run.state.usage == step.usage == Usage(input_tokens=60, output_tokens=4)
    assert run.state.cost == step.cost == pytest.approx(100e-6)
    assert run.state.current_response == "As far as I"
    assert run.state.final_response == ""
    assert [message.role for message in run.state.messages] == ["user"]


def test_nothing_known_of_the_answer_changes_nothing_else() -> None:
    run = cancelling(Run()).stop()
    run.feed(ModelCancelled(None, run.tick()))
    assert run.ended == USER
    assert run.state.usage == Usage()


def test_an_answer_that_came_to_its_end_just_then_is_kept_but_its_calls_are_not_run() -> None:
    run = cancelling(Run()).stop()
    said = InferenceResponse(text="whole", tool_calls=(call("a"),), usage=Usage(input_tokens=1, output_tokens=2))
    run.feed(ModelAnswered(said, run.tick()))
    step = run.state.running.current_step
    assert step is not None
    assert step.partial_response is not None
    assert (run.ended, step.partial_response.tool_calls, run.state.usage.total_tokens) == (USER, (), 3)


def test_a_call_that_failed_just_then_does_not_fail_the_run() -> None:
    run = cancelling(Run()).stop()
    run.feed(ModelFailed(BOOM, run.tick(), failed_usage=Usage(input_tokens=7)))
    assert (run.ended, run.state.usage.input_tokens, run.state.has_errors) == (USER, 7, False)


def test_the_time_limit_waits_for_it_as_well() -> None:
    run = cancelling(Run(ExecutionBudget(max_seconds=5)))
    run.feed(TimerFired(run.tick(10)))
    assert run.commands == (CancelInFlight(),)
    run.feed(ModelCancelled(PARTIAL, run.tick()))
    assert run.ended == stopped(StopReason.TIME_LIMIT)
    assert run.state.usage == PARTIAL.usage


def test_what_comes_meanwhile_is_kept_and_begins_nothing() -> None:
    run = cancelling(Run(ExecutionBudget(max_seconds=5))).stop("first").stop("again")
    run.says("by the way")
    run.feed(TimerFired(run.tick(10)))
    run.returns("nobody")
    assert run.commands == ()
    run.feed(ModelCancelled(None, run.tick()))
    assert run.ended == USER
    assert [signal.message for signal in run.state.running.continuation.stop_signals] == ["first"]
    assert [message.text for message in run.state.messages] == ["Do it.", "by the way"]


def test_a_driver_that_fails_meanwhile_is_not_waited_for() -> None:
    run = cancelling(Run()).stop()
    run.driver_fails(BOOM)
    assert run.state.status is ExecutionStatus.FAILED


@pytest.mark.parametrize("saved", [False, True])
def test_whoever_goes_on_with_it_waits_for_nothing(saved: bool) -> None:  # noqa: FBT001  # a parameter
    run = cancelling(Run()).stop()
    if saved:
        run.resume()
    else:
        run.state = AgentState.from_json(run.state.to_json())
        run.feed(RunContinued(run.tick()))
    assert run.ended == USER


def test_a_model_call_that_is_cancelled_behind_the_loop_fails_the_run() -> None:
    run = cancelling(Run())
    run.feed(ModelCancelled(PARTIAL, run.tick()))
    assert run.state.status is ExecutionStatus.FAILED
    assert run.state.usage == PARTIAL.usage
    assert [error.type for error in run.state.errors] == ["Cancelled"]


@pytest.mark.parametrize("ended", ["summarised", "failed", "unknown"])
def test_a_stop_waits_for_what_a_summary_used_and_keeps_none_of_it(ended: str) -> None:
    policy = ContextPolicy(summary=SummaryPolicy(above_input_tokens=10, keep_messages=1))
    run = cancelling(Run(llm=PRICED, context=policy)).answer("", call("a")).returns("a")
    while not run.wanted(SummariseBuffer):
        run.answer("", call("b")).returns("b")
    before = run.state
    run.stop()
    assert run.commands == (CancelInFlight(),)
    assert run.state.status is ExecutionStatus.IN_PROGRESS
    used = Usage(input_tokens=40)
    if ended == "summarised":
        run.feed(BufferSummarised("all that", used, run.tick()))
    elif ended == "failed":
        run.feed(SummaryFailed(BOOM, run.tick(), failed_usage=used))
    else:
        used = Usage()
        run.feed(ModelCancelled(None, run.tick()))
    assert run.ended == USER
    assert run.state.usage == before.usage + used
    assert run.state.cost == pytest.approx(before.cost + 0.000001 * used.input_tokens)
    assert run.state.store == before.store
    assert run.state.warnings == before.warnings


def test_a_stop_waits_for_what_each_subagent_used_and_cancels_the_tools_at_once() -> None:
    run = cancelling(Run(subagents=[HELPER])).answer("", spawn("a"), call("b"), spawn("c")).stop()
    assert run.commands == (CancelInFlight(),)
    assert [each.call.id for each in run.state.running.open_calls] == ["a", "c"]
    run.child("a", "half", ExecutionStatus.STOPPED, usage=Usage(input_tokens=5), cost=0.5, steps=2)
    assert run.state.status is ExecutionStatus.IN_PROGRESS
    run.child("c", "all of it", usage=Usage(output_tokens=6), cost=0.25)
    assert run.ended == USER
    executions = {each.call.id: each for each in run.state.last_step_tool_executions}
    assert {name: each.outcome for name, each in executions.items()} == {
        "a": Outcome.CANCELLED,
        "b": Outcome.CANCELLED,
        "c": Outcome.SUCCEEDED,
    }
    assert executions["a"].usage == Usage(input_tokens=5)
    assert run.answers["c"] == "all of it"
    assert run.state.running.subagent_steps == 2
    assert run.state.cost == run.state.steps[0].cost == pytest.approx(0.75)
    assert run.state.usage == run.state.steps[0].usage


def test_the_run_that_goes_on_asks_for_the_model_again_without_telling_it_twice() -> None:
    run = Run(observed=True).begin().answer("", call("a")).returns("a")
    told = len(run.events)
    run.state = AgentState.from_json(run.state.to_json())
    run.feed(RunContinued(run.tick()))
    assert run.model_call.step_number == 2
    assert len(run.events) == told


def test_the_run_that_goes_on_after_the_time_limit_asks_for_nothing() -> None:
    run = Run(ExecutionBudget(max_seconds=60)).begin().answer("", call("a")).returns("a")
    run.feed(RunContinued(run.tick(100)))
    assert run.ended == stopped(StopReason.TIME_LIMIT)
    assert run.commands == (Finish(),)


def test_a_call_with_a_partial_answer_never_becomes_a_tool_call() -> None:
    partial = InferenceResponse(text="", tool_calls=(ToolCall(id="x", name="add", arguments={}),))
    run = cancelling(Run()).stop()
    run.feed(ModelCancelled(partial, run.tick()))
    step = run.state.running.current_step
    assert step is not None
    assert step.partial_response is not None
    assert step.partial_response.tool_calls == ()


def test_an_end_that_nobody_awaits_ends_no_waiting() -> None:
    asked = cancelling(Run(subagents=[HELPER])).stop()
    asked.child("nobody")
    assert asked.state.status is ExecutionStatus.IN_PROGRESS
    called = cancelling(Run(subagents=[HELPER])).answer("", spawn("a")).stop()
    called.feed(ModelCancelled(PARTIAL, called.tick()))
    assert called.state.status is ExecutionStatus.IN_PROGRESS
    assert called.child("a", "", ExecutionStatus.STOPPED).ended == USER
