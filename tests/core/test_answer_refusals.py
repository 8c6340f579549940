"""Answers that a hook refuses: asked for again, counted in a row, and recorded on their steps."""

from __future__ import annotations

from holdfast.core.agent.hooks import Changes, Trigger, problem_with
from holdfast.core.agent.policies import JsonObjectFormat
from holdfast.core.conversation.steps import AgentStepType
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.tools.tool_traits import RETRIES_MAX
from tests.core.building import COMPLETED, Run, call, hook_at, stopped

GUARD = hook_at(Trigger.AFTER_INFERENCE)
NO = Changes(refuse="too short")


def test_a_refused_answer_is_no_final_response_and_the_model_answers_again() -> None:
    run = Run(hooks=[GUARD], errors="fatal").begin().answer("no").hooked(NO)
    step = run.state.steps[0]
    assert step.step_type is AgentStepType.ERROR
    assert [(each.type, each.message, each.source) for each in step.errors] == [
        ("AnswerRefused", "too short", GUARD.name)
    ]
    assert run.state.messages[-1].text == "Your answer was refused: too short\nAnswer again."
    assert run.answer("long enough").hooked().ended == COMPLETED
    assert run.state.final_response == "long enough"


def test_as_many_refusals_in_a_row_as_a_tool_may_have_retries_then_the_run_stops() -> None:
    run = Run(hooks=[GUARD]).begin()
    for _ in range(RETRIES_MAX):
        run.answer("no").hooked(NO)
    assert run.answer("no").hooked(NO).ended == stopped(StopReason.RETRY_LIMIT)
    assert run.state.final_response == ""
    signal = run.state.stop_signal
    assert signal is not None
    assert dict(signal.context) == {"limit": "retries_max", "used": RETRIES_MAX, "allowed": RETRIES_MAX}


def test_a_refused_answer_of_the_wrong_form_is_asked_for_once() -> None:
    run = Run(hooks=[GUARD], response_format=JsonObjectFormat()).begin().answer("no", problem="no object").hooked(NO)
    assert len([each for each in run.state.messages if each.role == "user"]) == 2
    assert run.state.running.reasks == 0


def test_an_answer_that_asks_for_tools_is_not_refused() -> None:
    run = Run(hooks=[GUARD]).begin().answer("", call("a")).hooked(NO).returns("a")
    assert run.state.steps[0].errors == ()
    assert "only a final answer can be refused" in run.state.warnings[-1]


def test_the_reasons_of_two_hooks_reach_the_model_together() -> None:
    other = hook_at(Trigger.AFTER_INFERENCE, "other")
    run = Run(hooks=[GUARD, other]).begin().answer("no").hooked(NO, Changes(refuse="rude"))
    assert run.state.messages[-1].text == "Your answer was refused: too short\nrude\nAnswer again."


def test_only_after_inference_can_refuse_and_not_replace_at_once() -> None:
    assert (
        problem_with(Trigger.AFTER_STEP, NO) == "only an after_inference hook can refuse the answer, this is after_step"
    )
    both = Changes(refuse="no", answer="yes")
    assert problem_with(Trigger.AFTER_INFERENCE, both) == "it refuses the answer and replaces it; do one of them"
