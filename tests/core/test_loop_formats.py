"""Answers that break the response format: re-asked so often, then the end (docs/spec.md, section 7)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import Trigger
from holdfast.core.agent.policies import JsonObjectFormat
from holdfast.core.conversation.stop_reasons import StopReason
from tests.core.building import COMPLETED, FAILED, Run, call, hook_at, stopped

WRONG = "$: it is no JSON"


def formatted(**rules: Any) -> Run:  # noqa: ANN401  # fields of any type
    return Run(response_format=JsonObjectFormat(), **rules).begin("one")


def test_an_answer_of_the_wrong_form_is_asked_for_again_with_the_reason() -> None:
    run = formatted().answer("words", problem=WRONG)
    assert run.model_call.step_number == 2
    assert run.said[1:] == [
        "words",
        f"Your answer cannot be used: {WRONG}\nAnswer again, in the required form and with nothing else.",
    ]
    assert run.state.last_step_type == "error"
    assert [error.type for error in run.state.errors] == ["InvalidAnswer"]
    assert run.answer("{}").ended == COMPLETED
    assert run.state.final_response == "{}"


def test_a_bad_answer_and_its_re_ask_are_trace_and_the_good_answer_is_not() -> None:
    run = formatted().answer("words", problem=WRONG).answer("{}")
    assert [(m.role, m.metadata.get("is_trace", False)) for m in run.state.messages] == [
        ("user", False),
        ("assistant", True),
        ("user", True),
        ("assistant", False),
    ]


@pytest.mark.parametrize("times", [0, 1, 2])
def test_after_so_many_re_asks_the_run_stops_and_says_what_was_wrong(times: int) -> None:
    run = formatted(reasks_max=times)
    for _ in range(times + 1):
        run.answer("words", problem=WRONG)
    assert run.ended == stopped(StopReason.RETRY_LIMIT)
    assert run.state.step_count == times + 1
    assert run.state.final_response == ""
    assert run.state.stop_signal is not None
    assert run.state.stop_signal.message == f"the answer breaks the response format after {times} re-asks: {WRONG}"


@pytest.mark.parametrize("end", ["stop", "timer"])
def test_a_bad_answer_does_not_count_where_the_run_ends_before_its_hooks_have(end: str) -> None:
    hooks = [hook_at(Trigger.AFTER_INFERENCE)]
    run = Run(ExecutionBudget(max_seconds=60), response_format=JsonObjectFormat(), hooks=hooks).begin("one")
    run.answer("words", problem=WRONG)
    _ = run.stop() if end == "stop" else run.timer(after=60)
    assert run.ended == stopped(StopReason.USER_REQUESTED if end == "stop" else StopReason.TIME_LIMIT)
    assert [error.message for error in run.state.errors] == [
        WRONG,
        "the run ended before its after_inference hooks had passed the answer",
    ]
    assert run.state.final_response == ""
    assert run.said == ["one"], "nothing is asked for again, and what is held back is not in the conversation"


def test_a_bad_answer_is_not_asked_for_again_past_the_limits() -> None:
    run = Run(ExecutionBudget(max_steps=1), response_format=JsonObjectFormat()).begin().answer("words", problem=WRONG)
    assert run.ended == stopped(StopReason.STEPS_LIMIT)


def test_a_step_with_tools_is_not_judged_by_the_form_of_its_words() -> None:
    run = formatted().answer("let me see", call("a")).returns("a").answer("{}")
    assert run.ended == COMPLETED
    assert not run.state.has_errors


def test_re_asks_are_counted_per_execution() -> None:
    run = formatted(reasks_max=1).answer("words", problem=WRONG).answer("{}")
    run.begin("two").answer("words", problem=WRONG)
    assert run.answer("{}").ended == COMPLETED


def test_re_asks_with_tools_in_between_count_together() -> None:
    run = formatted(reasks_max=1).answer("words", problem=WRONG).answer("", call("a")).returns("a")
    assert run.answer("words", problem=WRONG).ended == stopped(StopReason.RETRY_LIMIT)


def test_where_errors_are_fatal_a_bad_answer_is_the_last() -> None:
    run = formatted(errors="fatal").answer("words", problem=WRONG)
    assert run.ended == FAILED
    assert run.state.step_count == 1


def test_an_answer_that_was_cut_off_and_broken_by_it_ends_early() -> None:
    run = formatted().answer('{"a', problem=WRONG, finish_reason="length")
    assert run.ended == (ExecutionStatus.COMPLETED, StopReason.FINISH_REASON)
    assert run.state.final_response == ""
