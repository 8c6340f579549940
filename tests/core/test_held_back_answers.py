"""Answers whose hooks are cut off, or fail: they do not count, and nobody is told them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.conversation.stop_reasons import StopReason
from tests.core.building import Run, call, hook_at, stopped

RAISED = ErrorRecord(type="HookFailed", message="the hook 'bad' raised LookupError: nothing there", source="bad")


def a_hook_raises(run: Run) -> Run:
    return run.hooked(RAISED)


@pytest.mark.parametrize("trigger", ["after_inference", "after_step"])
@pytest.mark.parametrize("ends", [Run.stop, Run.timer, Run.driver_fails, a_hook_raises])
def test_an_answer_does_not_count_that_its_hooks_have_not_passed(trigger: str, ends: Callable[[Run], Run]) -> None:
    run = Run(ExecutionBudget(max_seconds=2), observed=True, hooks=[hook_at(trigger)]).begin().answer("it is secret")
    ends(run)
    assert run.state.status in (ExecutionStatus.STOPPED, ExecutionStatus.FAILED)
    assert (run.state.final_response, run.state.current_response, run.said) == ("", "", ["Do it."])
    (step,) = run.state.steps
    assert step.partial_response is not None
    assert step.partial_response.text == "it is secret"
    text = f"the run ended before its {trigger} hooks had passed the answer"
    assert step.errors == (ErrorRecord(type="AnswerHeldBack", message=text, source=trigger),)
    assert run.state.usage == step.usage


def test_an_answer_that_its_hooks_had_not_passed_in_time_does_not_count_for_who_takes_the_run_up() -> None:
    run = Run(ExecutionBudget(max_seconds=2), hooks=[hook_at("after_inference")]).begin().answer("it is secret")
    run.tick(100)
    run.resume()
    assert run.ended == stopped(StopReason.TIME_LIMIT)
    assert (run.state.current_response, run.said) == ("", ["Do it."])


def test_what_stands_beside_tool_calls_is_not_told_before_its_hooks_have_passed() -> None:
    run = Run(hooks=[hook_at("after_inference")]).begin().answer("it is secret", call("a")).stop()
    assert run.outcomes == [("a", "cancelled")]
    assert (run.state.current_response, run.said[:2]) == ("", ["Do it.", ""])
    assert [error.type for error in run.state.errors] == ["AnswerHeldBack"]
