"""Steps and tool executions: what is derived from what happened (docs/spec.md, section 3)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from pydantic import JsonValue

from holdfast.core.base.frozen import replace
from holdfast.core.base.truncation import Reference
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.steps import (
    AgentStep,
    AgentStepType,
    ErrorRecord,
    InferenceResponse,
    Outcome,
    StepExecution,
    ToolExecution,
)
from holdfast.core.conversation.stop_reasons import Continuation
from tests.core.building import BOOM, START, USAGE, call, moment
from tests.core.strategies import step_executions

OTHER = ErrorRecord(type="Other", message="differently", source="test")


def ended(
    wanted: ToolCall, outcome: Outcome, error: ErrorRecord | None = None, result: str | None = None
) -> ToolExecution:
    return ToolExecution(
        id="1", call=wanted, outcome=outcome, error=error, result=result, started_at=START, completed_at=moment(1)
    )


def step(
    *executions: ToolExecution, errors: tuple[ErrorRecord, ...] = (), asked: tuple[ToolCall, ...] = ()
) -> AgentStep:
    wanted = asked or tuple(execution.call for execution in executions)
    response = InferenceResponse(text="words", tool_calls=wanted, usage=USAGE)
    return AgentStep(
        id="s", number=1, input_length=1, inference_response=response, tool_executions=executions, errors=errors
    )


def test_a_step_with_any_error_is_an_error() -> None:
    assert step(errors=(BOOM,)).step_type == "error"
    assert step(ended(call("a"), Outcome.FAILED, BOOM)).step_type == "error"


def test_a_step_that_asked_for_tools_is_a_tool_execution() -> None:
    assert step(ended(call("a"), Outcome.SUCCEEDED)).step_type == "tool_execution"
    assert step(asked=(call("a"),)).step_type == "tool_execution"
    assert step(ended(call("a"), Outcome.DENIED, BOOM)).step_type == "tool_execution"


def test_any_other_step_is_a_final_response() -> None:
    assert step().step_type == "final_response"


def test_a_step_has_no_type_before_its_answer_unless_it_failed() -> None:
    asking = AgentStep(id="s", number=1, input_length=0)
    cut = replace(asking, partial_response=InferenceResponse(text="As far as"))
    assert (asking.step_type, cut.step_type) == (None, None)
    assert replace(asking, errors=(BOOM,)).step_type is AgentStepType.ERROR


def test_errors_of_tools_come_first_and_none_twice() -> None:
    found = step(
        ended(call("a"), Outcome.FAILED, OTHER), ended(call("b"), Outcome.FAILED, BOOM), errors=(BOOM, OTHER)
    ).all_errors
    assert found == (OTHER, BOOM)


def test_blocked_denied_and_cancelled_calls_are_no_errors_and_did_not_run() -> None:
    outcomes = (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.BLOCKED, Outcome.DENIED, Outcome.CANCELLED)
    each = step(*(ended(call(outcome.value), outcome, BOOM) for outcome in outcomes))
    assert [c.id for c in each.requested_tool_calls] == [outcome.value for outcome in outcomes]
    assert [c.id for c in each.executed_tool_calls] == ["succeeded", "failed"]
    assert each.all_errors == (BOOM,)


def test_only_blocked_and_denied_calls_were_blocked() -> None:
    assert [o.value for o in Outcome if ended(call("a"), o).was_blocked] == ["blocked", "denied"]


def test_an_execution_answers_its_call_with_its_result_or_its_error() -> None:
    assert ended(call("a"), Outcome.SUCCEEDED, result="3").answer.content == "3"
    assert ended(call("a"), Outcome.SUCCEEDED).answer.content == ""
    failed = ended(call("a"), Outcome.FAILED, BOOM).answer
    assert (failed.role, failed.tool_call_id, failed.content) == ("tool", "a", "Error (Boom): it broke")


@pytest.mark.parametrize("value", [{"a": [1, None]}, [], 3, 2.5, True, None, "words"])
def test_the_value_of_a_json_result_is_what_the_tool_returned(value: JsonValue) -> None:
    execution = replace(ended(call("a"), Outcome.SUCCEEDED, result=json.dumps(value)), result_type="json")
    assert execution.value == value
    assert type(execution.value) is type(value)
    assert ToolExecution.from_dict(execution.to_dict()) == execution


def test_the_value_of_a_text_is_the_text_and_nothing_more_is_written() -> None:
    execution = ended(call("a"), Outcome.SUCCEEDED, result='{"a": 1}')
    assert execution.value == '{"a": 1}'
    assert "result_type" not in execution.to_dict()
    assert ended(call("a"), Outcome.FAILED, BOOM).value is None


def test_a_cut_result_has_the_reference_of_the_whole() -> None:
    shown = Reference("a" * 24, "100,000").shown("x" * 100_000, 1_000)
    assert ended(call("a"), Outcome.SUCCEEDED, result=shown).reference == "a" * 24
    assert ended(call("a"), Outcome.SUCCEEDED, result="x").reference is None
    assert ended(call("a"), Outcome.FAILED, BOOM).reference is None


def test_a_step_says_the_assistants_message_and_then_one_answer_per_call_in_request_order() -> None:
    first, second = ended(call("a"), Outcome.SUCCEEDED, result="1"), ended(call("b"), Outcome.SUCCEEDED, result="2")
    said = step(second, first, asked=(call("a"), call("b"))).output_messages
    assert [(m.role, m.content, m.tool_call_id) for m in said] == [
        ("assistant", "words", None),
        ("tool", "1", "a"),
        ("tool", "2", "b"),
    ]
    assert [c.id for c in said[0].tool_calls] == ["a", "b"]


def test_a_step_whose_model_never_answered_says_nothing() -> None:
    silent = AgentStep(id="s", number=1, input_length=0, errors=(BOOM,))
    assert silent.output_messages == ()
    assert silent.usage == Usage()
    assert silent.requested_tool_calls == ()


def test_calls_without_an_execution_are_unanswered_with_their_place() -> None:
    each = step(ended(call("b"), Outcome.SUCCEEDED), asked=(call("a"), call("b"), call("c")))
    assert [(place, c.id) for place, c in each.unanswered_calls] == [(0, "a"), (2, "c")]


def test_a_step_execution_tells_its_duration_and_usage() -> None:
    done = StepExecution(step=step(), started_at=START, completed_at=moment(2.5), continuation=Continuation())
    assert done.duration.total_seconds() == 2.5
    assert done.usage == USAGE


@given(step_executions)
def test_a_step_execution_survives_json(done: StepExecution) -> None:
    assert StepExecution.model_validate_json(done.model_dump_json()) == done


def test_a_step_and_its_parts_have_the_fields_of_the_specification_and_its_type_is_not_one() -> None:
    assert {"id", "inference_response", "tool_executions", "errors"} <= set(AgentStep.model_fields)
    assert "step_type" not in step(errors=(BOOM,)).model_dump()
    answered = {"text", "reasoning", "tool_calls", "finish_reason", "usage", "model", "response_id"}
    assert answered <= set(InferenceResponse.model_fields)
    ended_ = {"id", "call", "result", "error", "started_at", "completed_at", "outcome"}
    assert ended_ <= set(ToolExecution.model_fields)
    assert {"id", "name", "arguments"} <= set(ToolCall.model_fields)
    assert [outcome.value for outcome in Outcome] == ["succeeded", "failed", "blocked", "denied", "cancelled"]
