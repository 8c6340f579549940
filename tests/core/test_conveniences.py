"""What saves a user a line: states made of nothing, short names on calls, values as dicts, times as text."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.execution_state import ExecutionState
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.json_form import JsonForm
from holdfast.core.conversation.messages import MessageStore
from holdfast.core.conversation.steps import AgentStep, Duration, StepExecution, ToolExecution
from holdfast.core.conversation.stop_reasons import StopReason, StopSignal
from tests.core.building import BOOM, START, Run, call, moment
from tests.core.strategies import states


def worked() -> AgentState:
    """Return a state with a result, an error, a signal and a budget."""
    run = Run(ExecutionBudget(max_steps=1)).begin().answer("looking", call("a"), call("b"), after=1.5)
    return run.returns("a", "3").fails("b").state


def test_a_state_is_made_in_one_line_and_every_change_of_it_comes_later() -> None:
    empty = AgentState.empty()
    state = empty.with_system_prompt("Be brief.").with_user_message("What is it?").with_metadata({"at": 1}, team="red")
    assert (state.context.system_prompt, [message.text for message in state.messages]) == ("Be brief.", ["What is it?"])
    assert (state.metadata, state.status) == ({"at": 1, "team": "red"}, "pending")
    assert empty.updated_at < state.updated_at
    assert (len(empty.messages), state.created_at) == (0, empty.created_at)
    assert state.for_next_execution().updated_at > state.updated_at


def test_a_call_has_the_short_names() -> None:
    good, bad = worked().steps[0].tool_executions
    assert (good.name, good.args, good.value, good.has_error, good.error_message) == ("add", {"a": 1}, "3", False, "")
    assert (bad.name, bad.value, bad.has_error, bad.error_message) == ("add", None, True, BOOM.message)


def test_a_length_of_time_formats_as_its_seconds_and_is_one() -> None:
    state = worked()
    (done,) = state.step_executions
    assert (f"{done.duration:.1f} s", done.duration) == ("3.5 s", timedelta(seconds=3.5))
    assert f"{done.duration}" == str(timedelta(seconds=3.5))
    assert f"{state.last_step_duration:.2f} {state.execution_duration:.0f}" == "3.50 4"
    assert f"{state.steps[0].tool_executions[1].duration:.1f}" == "1.0"
    assert Duration.between(START, moment(2)) + timedelta(seconds=1) == timedelta(seconds=3)


def test_the_long_names_of_the_reasons_are_the_same_members() -> None:
    short = {f"{name}_REACHED": name for name in StopReason.__members__ if name.endswith("_LIMIT")}
    short |= {"ERROR_FORBADE": "ERROR", "FINISH_REASON_RECEIVED": "FINISH_REASON"}
    assert len(short) == 7
    assert all(StopReason[long] is StopReason[name] for long, name in short.items())
    assert len(set(StopReason)) == len(list(StopReason)) == 11, "no reason more"


def test_a_budget_without_a_deadline_needs_no_moment() -> None:
    assert not ExecutionBudget.unlimited().is_exhausted()
    assert ExecutionBudget(max_steps=0, deadline=START).is_exhausted()
    late = ExecutionBudget(deadline=START)
    assert late.is_exhausted(START)
    with pytest.raises(InvalidInput, match="has a deadline: give the moment"):
        late.is_exhausted()


@given(states)
def test_every_value_of_a_state_comes_back_from_its_dict_as_it_was(state: AgentState) -> None:
    values: list[JsonForm] = [state.store, state.budget]
    if state.execution is not None:
        values += [state.execution, *state.step_executions, *state.steps, *state.running.continuation.stop_signals]
        values += [each for step in state.steps for each in step.tool_executions]
    for value in values:
        data = value.to_dict()
        assert type(value).from_dict(json.loads(json.dumps(data))) == value


@pytest.mark.parametrize(
    ("kind", "data", "told"),
    [
        (ExecutionBudget, {"max_steps": "three"}, "this is not a valid ExecutionBudget: max_steps: Input should be"),
        (StopSignal, {"reason": "so", "at": "2025-01-01T00:00:00Z"}, "this is not a valid StopSignal: reason"),
        (AgentStep, {"id": "s", "number": 1}, "input_length: Field required"),
        (StepExecution, {}, "(and 1 more)"),
        (ToolExecution, {"id": "x", "name": "look"}, "call: Field required"),
        (MessageStore, {"sections": [], "colour": "red"}, "this is not a valid MessageStore"),
        (ExecutionState, {"execution_id": object()}, "this is not a valid ExecutionState"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_what_is_no_such_value_is_refused_by_its_fields(kind: type[JsonForm], data: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        kind.from_dict(data)
    assert told in str(refused.value)
