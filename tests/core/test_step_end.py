"""The final status by its table, and what a failed execution keeps (docs/spec.md, section 2)."""

from __future__ import annotations

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import Changes, Trigger
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.steps import ErrorRecord, InferenceResponse
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.commands import Finish
from holdfast.core.loop.events import ModelAnswered, StopRequested
from holdfast.core.wire.execution_events import AgentExecutionFailed
from tests.core.building import BOOM, COMPLETED, DEFINITION, FAILED, USAGE, call, signal
from tests.core.ruled import Ruled, triggered

FATAL = replace(DEFINITION, errors="fatal")


def test_row_1_an_error_that_prevented_continuation_fails_whatever_signals_there_are() -> None:
    run = Ruled().begin().stop(mode="after_step").model_fails()
    assert (run.ended, run.signals) == (FAILED, ["user_requested", "error"])


def test_row_2_any_error_fails_where_errors_are_fatal() -> None:
    run = Ruled(FATAL).begin().answer("", call("a")).fails("a")
    assert (run.ended, run.state.errors) == (FAILED, (BOOM,))
    assert run.commands == (Finish(),)


@pytest.mark.parametrize("budget", [ExecutionBudget(max_steps=1), ExecutionBudget(max_tokens=121)])
def test_row_2_comes_before_row_3(budget: ExecutionBudget) -> None:
    assert Ruled(FATAL, budget=budget).begin().answer("", call("a")).fails("a").ended == FAILED


def test_row_2_holds_when_a_stop_cuts_the_step_short() -> None:
    run = Ruled(FATAL).begin().answer("", call("a"), call("b")).fails("a").stop()
    assert (run.ended, run.signals) == (FAILED, ["user_requested", "error"])
    assert [each.error for each in run.events if isinstance(each, AgentExecutionFailed)] == [BOOM]


@pytest.mark.parametrize("reason", [reason for reason in StopReason if reason is not StopReason.ERROR])
def test_row_3_a_forcing_signal_stops_and_row_4_anything_else_completes(reason: StopReason) -> None:
    run = Ruled().begin()
    run.feed(StopRequested(signal(reason), "after_step", run.tick()))
    status = ExecutionStatus.STOPPED if reason.forced else ExecutionStatus.COMPLETED
    assert run.answer("done").ended == (status, reason)


def test_by_default_a_good_answer_after_a_tools_error_is_completed_and_the_error_stays_readable() -> None:
    run = Ruled().begin().answer("", call("a")).fails("a").answer("anyway")
    assert DEFINITION.errors == "recover"
    assert (run.ended, run.state.errors, run.state.has_errors) == (COMPLETED, (BOOM,), True)


@pytest.mark.parametrize(
    "trigger", [Trigger.BEFORE_EXECUTION, Trigger.AFTER_INFERENCE, Trigger.AFTER_TOOL, Trigger.AFTER_STEP]
)
def test_a_hook_that_forbids_going_on_with_an_error_fails_the_execution(trigger: Trigger) -> None:
    run = Ruled(hooks={trigger: Changes(stop="never", stop_reason="error")}).begin().answer("", call("a")).returns("a")
    assert run.ended == FAILED
    assert run.state.errors == (ErrorRecord(type="ErrorForbade", message="never", source=f"at_{trigger}"),)


def test_a_failed_execution_runs_on_error_and_not_on_stop() -> None:
    hooks: dict[Trigger, Changes | None] = dict.fromkeys((Trigger.ON_STOP, Trigger.ON_ERROR, Trigger.AFTER_EXECUTION))
    assert triggered(Ruled(hooks=hooks).begin().model_fails()) == [Trigger.ON_ERROR, Trigger.AFTER_EXECUTION]
    assert triggered(Ruled(hooks=hooks).begin().answer("x")) == [Trigger.ON_STOP, Trigger.AFTER_EXECUTION]
    assert triggered(Ruled(hooks=hooks).begin().stop()) == [Trigger.ON_STOP, Trigger.AFTER_EXECUTION]


def test_the_reason_of_a_natural_end_is_completed_without_any_signal() -> None:
    run = Ruled().begin().answer("done")
    assert (run.ended, run.signals) == (COMPLETED, [])


def test_an_answer_that_ended_early_is_completed_for_its_finish_reason() -> None:
    run = Ruled().begin().answer("cut off he", finish_reason="length")
    assert run.ended == (ExecutionStatus.COMPLETED, StopReason.FINISH_REASON)
    assert run.state.final_response == "cut off he"


def test_a_stop_that_arrives_while_the_last_hooks_run_changes_nothing() -> None:
    run = Ruled(hooks={Trigger.ON_STOP: None}).begin()
    answer = ModelAnswered(InferenceResponse(text="done", usage=USAGE), run.tick())
    ending, _ = run.loop.step(run.state, answer)
    assert ending.running.hooks_under_way is Trigger.ON_STOP
    late = StopRequested(signal(StopReason.USER_REQUESTED), "now", run.tick())
    assert run.loop.step(ending, late) == (ending, ())


def test_every_step_but_the_final_response_leaves_a_trace_also_one_with_errors() -> None:
    run = Ruled().begin().answer("", call("a")).returns("a").answer("", call("b")).fails("b").answer("done")
    assert [step.step_type for step in run.state.steps] == ["tool_execution", "error", "final_response"]
    traces = [message.metadata.get("is_trace") for message in run.state.messages if message.role != "user"]
    assert traces == [True, True, True, True, None]
    assert Ruled().begin().answer("wrong", problem="it is no JSON").state.messages[1].metadata["is_trace"] is True
