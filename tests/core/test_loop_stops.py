"""The loop and a stop from outside, at every moment and in both modes (docs/spec.md, section 4)."""

from __future__ import annotations

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.bounds import STOP_SIGNALS_MAX
from holdfast.core.conversation.stop_reasons import Continuation, StopReason
from holdfast.core.loop.commands import CallModel, CancelInFlight, Finish
from holdfast.core.loop.events import StopRequested
from tests.core.building import COMPLETED, FAILED, Run, call, moment, signal, stopped

USER = stopped(StopReason.USER_REQUESTED)


@pytest.mark.parametrize("mode", ["now", "after_step"])
def test_a_stop_before_the_beginning_stops_nothing(mode: str) -> None:
    run = Run().stop(mode="now" if mode == "now" else "after_step")
    assert run.state.status is ExecutionStatus.PENDING
    assert run.begin().state.status is ExecutionStatus.IN_PROGRESS


def test_a_stop_during_the_model_call_cancels_it() -> None:
    run = Run().begin().stop("no longer needed")
    assert run.commands == (CancelInFlight(), Finish())
    assert run.ended == USER
    assert run.state.step_count == 0
    assert run.state.stop_signal is not None
    assert run.state.stop_signal.message == "no longer needed"


def test_a_stop_during_tools_cancels_the_open_ones_and_keeps_the_results_there_are() -> None:
    run = Run().begin().answer("", call("a"), call("b"), call("c")).returns("b", "kept").fails("c").stop()
    assert run.commands == (CancelInFlight(), Finish())
    assert run.ended == USER
    assert run.outcomes == [("a", "cancelled"), ("b", "succeeded"), ("c", "failed")]
    assert run.answers == {
        "a": "Error (Cancelled): the run was stopped (user_requested: enough)",
        "b": "kept",
        "c": "Error (Boom): it broke",
    }


@pytest.mark.parametrize("reason", [reason for reason in StopReason if reason is not StopReason.ERROR])
def test_a_signal_that_does_not_force_leaves_the_run_completed(reason: StopReason) -> None:
    run = Run().begin()
    run.feed(StopRequested(signal(reason), "after_step", run.tick()))
    run.answer("done")
    assert run.ended == (ExecutionStatus.STOPPED if reason.forced else ExecutionStatus.COMPLETED, reason)


def test_a_request_to_continue_is_weighed_before_it_is_cleared() -> None:
    run = Run().begin()
    run.state = run.state.with_execution(run.tick(), continuation=Continuation(continuation_requested=True))
    run.answer("not yet")
    assert run.model_call.step_number == 2
    assert run.answer("done").ended == COMPLETED, "one request is good for one step"


def test_a_cancelled_call_has_the_times_between_its_step_and_the_stop() -> None:
    run = Run().begin().answer("", call("a"), after=3).stop()
    (cancelled,) = run.state.last_step_tool_executions
    assert run.state.step_executions[0].started_at <= cancelled.started_at < cancelled.completed_at == moment(5)


def test_a_cancelled_call_counts_neither_as_run_nor_as_an_error() -> None:
    run = Run().begin().answer("", call("a")).stop()
    step = run.state.last_step
    assert step is not None
    assert step.executed_tool_calls == ()
    assert step.step_type == "tool_execution"
    assert not run.state.has_errors


def test_after_step_lets_the_tools_under_way_finish() -> None:
    run = Run().begin().answer("", call("a"), call("b")).returns("a").stop(mode="after_step")
    assert not run.commands
    assert run.state.status is ExecutionStatus.IN_PROGRESS
    run.returns("b")
    assert run.commands == (Finish(),)
    assert run.ended == USER
    assert run.outcomes == [("a", "succeeded"), ("b", "succeeded")]


def test_after_step_during_the_model_call_still_runs_the_tools_of_that_step() -> None:
    run = Run().begin().stop(mode="after_step").answer("", call("a"))
    assert run.called == ["a"]
    run.returns("a")
    assert run.ended == USER
    assert run.state.step_count == 1
    assert run.wanted(CallModel) == ()


def test_after_step_during_the_last_model_call_keeps_the_answer_and_says_stopped() -> None:
    run = Run().begin().stop(mode="after_step").answer("done")
    assert run.ended == USER
    assert run.state.final_response == "done"


def test_now_after_after_step_ends_at_once() -> None:
    run = Run().begin().answer("", call("a")).stop("later", mode="after_step").stop("now!")
    assert run.ended == USER
    assert run.state.stop_signal is not None
    assert run.state.stop_signal.message == "later", "the earliest of equal signals decides"
    assert [signal.message for signal in run.state.running.continuation.stop_signals] == ["later", "now!"]
    assert run.outcomes == [("a", "cancelled")]


def test_the_signals_as_they_stood_are_kept_with_the_step() -> None:
    run = Run().begin().answer("", call("a")).stop(mode="after_step").returns("a")
    assert [signal.message for signal in run.state.step_executions[0].continuation.stop_signals] == ["enough"]


def test_a_higher_signal_decides_over_an_earlier_one() -> None:
    run = Run(ExecutionBudget(max_seconds=5)).begin().stop(mode="after_step").timer(5)
    assert run.ended == stopped(StopReason.TIME_LIMIT)
    reasons = [signal.reason for signal in run.state.running.continuation.stop_signals]
    assert reasons == [StopReason.USER_REQUESTED, StopReason.TIME_LIMIT]


def test_a_model_failure_after_a_stop_request_is_still_a_failure() -> None:
    run = Run().begin().stop(mode="after_step").model_fails()
    assert run.ended == FAILED


def test_a_stop_in_the_last_step_allowed_by_the_budget_stands_beside_its_limit() -> None:
    run = Run(ExecutionBudget(max_steps=1)).begin().stop(mode="after_step").answer("", call("a")).returns("a")
    assert run.ended[0] is ExecutionStatus.STOPPED
    assert run.state.step_count == 1


def test_a_thousand_stops_are_one_stop() -> None:
    run = Run().begin().answer("", call("a"))
    for number in range(1_000):
        run.stop(f"stop {number}", mode="after_step")
    assert len(run.state.running.continuation.stop_signals) == STOP_SIGNALS_MAX
    run.returns("a")
    assert run.ended == USER


def test_a_failure_after_many_stops_still_gives_its_reason() -> None:
    run = Run().begin()
    for _ in range(STOP_SIGNALS_MAX + 1):
        run.stop(mode="after_step")
    run.model_fails()
    assert run.ended == FAILED


def test_a_time_limit_after_many_stops_still_gives_its_reason() -> None:
    run = Run(ExecutionBudget(max_seconds=60)).begin()
    for _ in range(STOP_SIGNALS_MAX + 1):
        run.stop(mode="after_step")
    run.timer(after=60)
    assert run.ended == stopped(StopReason.TIME_LIMIT)


def test_a_stop_for_the_reason_error_fails_the_execution_and_says_who_asked() -> None:
    run = Run().begin()
    run.feed(StopRequested(signal=signal(StopReason.ERROR, "the database is gone", 1), mode="now", at=run.tick()))
    assert run.ended == FAILED
    (error,) = run.state.errors
    assert (error.type, error.message) == ("ErrorForbade", "the database is gone")
