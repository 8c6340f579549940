"""`AgentState`: accessors, ids, times, and a lossless serialized form (docs/spec.md, section 1)."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import pytest
from hypothesis import given
from pydantic import ValidationError

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.execution_state import (
    AgentContext,
    ExecutionState,
    ExecutionStatus,
    call_name,
    checked_id,
    named_id,
    step_id,
)
from holdfast.core.agent.hooks import Changes, Trigger
from holdfast.core.agent.initial_state import new_agent
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import StateInvalid
from holdfast.core.base.frozen import canonical
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import Message, user_message
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.conversation.stop_reasons import StopReason
from tests.core.building import AGENT_ID, BOOM, DEFINITION, START, USAGE, Run, call, hook_at, moment
from tests.core.strategies import moments, states

NEW = new_agent(DEFINITION, agent_id=AGENT_ID, at=START)


@given(states)
def test_the_serialized_form_loses_nothing_as_data_as_text_and_as_a_payload(state: AgentState) -> None:
    data = state.to_dict()
    assert AgentState.from_dict(data) == state
    again = AgentState.from_dict(json.loads(json.dumps(data)))
    assert again == state
    assert again.to_dict() == data
    assert AgentState.model_validate_json(canonical(state)) == state


def test_microseconds_are_kept() -> None:
    at = START + timedelta(microseconds=1)
    assert AgentState.from_dict(NEW.changed(at).to_dict()).updated_at == at


def test_the_form_carries_its_version_and_another_one_is_refused() -> None:
    data = NEW.to_dict()
    assert data["format"] == 1
    with pytest.raises(StateInvalid, match="format"):
        AgentState.from_dict({**data, "format": 2})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"agent_id": "me"}, "agent_id"),
        ({"created_at": "2025-01-01T00:00:00"}, "created_at"),
        ({"execution_count": -1}, "execution_count"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_bad_field_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(StateInvalid, match=field):
        AgentState.from_dict({**NEW.to_dict(), **changes})


@given(states, moments)
def test_a_change_leaves_the_old_state_alone_and_never_turns_back_the_time(state: AgentState, at: datetime) -> None:
    before = state.to_dict()
    for changed in (
        state.changed(at),
        state.with_messages(user_message("x"), at=at),
        state.for_next_execution(at),
        state.with_execution(at, usage=Usage()) if state.execution else state,
    ):
        assert changed.updated_at >= state.updated_at
        assert changed.created_at == state.created_at
    assert state.to_dict() == before


@given(states)
def test_every_accessor_answers_for_every_state(state: AgentState) -> None:
    public = [name for name in vars(AgentState) if isinstance(getattr(AgentState, name), property)]
    assert len(public) > 25
    for name in public:
        if name != "running":
            getattr(state, name)
    json.dumps(state.debug())


def test_a_state_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(NEW, "execution_count", 5)  # noqa: B010  # the type checkers would refuse the plain form


def test_the_next_execution_starts_without_the_last_one_and_with_everything_else() -> None:
    ended = Run().begin("one").answer("first").state
    fresh = ended.for_next_execution(moment(9))
    assert fresh.execution is None
    assert fresh.status is ExecutionStatus.PENDING
    assert (fresh.messages, fresh.metadata, fresh.llm) == (ended.messages, ended.metadata, ended.llm)
    assert (fresh.execution_count, fresh.context.system_prompt) == (1, "Be brief.")
    assert fresh.updated_at == moment(9)


@pytest.mark.parametrize("value", [str(UUID(int=7)), str(UUID(int=2**128 - 1)).upper()])
def test_an_id_is_a_uuid_in_its_canonical_form(value: str) -> None:
    assert checked_id(value) == value.lower()


@pytest.mark.parametrize(
    "value",
    [
        "",
        "me",
        "../../etc/passwd",
        "x" * 1_001,
        UUID(int=7).hex,
        f"{{{UUID(int=7)}}}",
        f"urn:uuid:{UUID(int=7)}",
        f"{UUID(int=7)}\n",
        f" {UUID(int=7)}",
        str(UUID(int=7)).replace("7", "\x00"),
        str(UUID(int=7)).replace("0", "\uff10"),
    ],
)
def test_anything_else_is_no_id(value: str) -> None:
    with pytest.raises(ValueError, match="is not a UUID") as caught:
        checked_id(value)
    assert len(str(caught.value)) < 300


def test_ids_follow_from_the_execution_and_the_place_alone() -> None:
    one, other = str(UUID(int=1)), str(UUID(int=2))
    assert step_id(one, 1) == step_id(one, 1) == str(uuid5(UUID(int=1), "step/1"))
    made = {step_id(one, 1), step_id(one, 2), step_id(other, 1)}
    made |= {named_id(id_, call_name(step, index)) for id_ in (one, other) for step in (1, 2) for index in (None, 0, 1)}
    assert len(made) == 3 + 12
    assert call_name(3) == "step-3-model"
    assert call_name(3, 0) == "step-3-tool-0"


def test_an_agent_without_an_execution_has_empty_answers() -> None:
    assert NEW.status is ExecutionStatus.PENDING
    assert (NEW.step_count, NEW.steps, tuple(NEW.step_executions), NEW.last_step) == (0, (), (), None)
    assert (NEW.usage, NEW.last_step_usage, NEW.budget) == (Usage(), Usage(), ExecutionBudget())
    assert (NEW.errors, NEW.has_errors, NEW.stop_signal, NEW.stop_reason) == ((), False, None, None)
    assert (NEW.final_response, NEW.current_response, NEW.has_final_response) == ("", "", False)
    assert (NEW.execution_duration, NEW.last_step_duration, NEW.last_tool_execution) == (None, None, None)
    assert (NEW.current_step_or_last, NEW.last_step_type, NEW.last_step_errors) == (None, None, ())
    assert not NEW.should_stop
    with pytest.raises(ValueError, match="no execution"):
        _ = NEW.running


def test_the_accessors_tell_what_the_last_step_did() -> None:
    run = Run().begin().answer("looking", call("a"), call("b")).returns("a", "1").fails("b")
    state = run.state
    assert (state.step_count, state.last_step_type, state.last_step_errors) == (1, "error", (BOOM,))
    assert [execution.result for execution in state.last_step_tool_executions] == ["1", None]
    assert state.last_tool_execution is state.last_step_tool_executions[-1]
    assert state.last_step_usage == USAGE
    assert state.current_step_or_last is state.running.current_step
    assert state.current_step_or_last is not state.last_step
    assert state.stop_reason is None
    run.answer("done")
    assert run.state.current_step_or_last is run.state.last_step
    assert run.state.last_tool_execution == state.last_tool_execution, "of any step, not of the last one alone"


def test_an_execution_ends_when_it_completes_and_lasts_until_then() -> None:
    run = Run().begin().answer("", call("a"), after=10)
    assert run.state.execution_duration == timedelta(seconds=10)
    run.returns("a").answer("done", after=30)
    assert run.state.execution_duration == timedelta(seconds=41)


def test_the_time_of_a_run_under_way_goes_on_although_nothing_happens() -> None:
    run = Run(ExecutionBudget(max_seconds=60)).begin().answer("", call("a"), after=10)
    later = run.state.at(moment(41))
    assert (later.execution_duration, later.budget_remaining.max_seconds) == (timedelta(seconds=40), 20)
    assert run.state.budget_remaining.max_seconds == 50, "the state itself is as it was"
    assert run.state.at(moment(0)) == run.state, "a clock that is behind turns nothing back"
    ended = run.returns("a").answer("done").state
    assert ended.at(moment(99)) is ended
    assert NEW.at(moment(99)) is NEW


def test_the_time_that_a_person_takes_goes_on_and_counts_only_where_it_is_to() -> None:
    asks = (ApprovalRule(tools=("add",)),)
    for pauses, left in ((False, 20), (True, 50)):
        run = Run(ExecutionBudget(max_seconds=60), approvals=asks, pause_while_waiting=pauses)
        later = run.begin().answer("", call("a"), after=10).state.at(moment(41))
        assert (later.execution_duration, later.budget_remaining.max_seconds) == (timedelta(seconds=40), left)


def test_should_stop_reads_the_table_for_the_step_under_way() -> None:
    run = Run().begin()
    run.answer("", call("a"))
    assert not run.state.should_stop
    assert run.stop(mode="after_step").state.should_stop
    assert Run().begin().answer("done").state.should_stop


def test_the_loop_is_not_to_stop_while_it_goes_on() -> None:
    run = Run(hooks=[hook_at(trigger) for trigger in (Trigger.AFTER_STEP, Trigger.BEFORE_STEP, Trigger.ON_STOP)])
    run.begin()
    assert not run.state.should_stop, "before the first step"
    run.hooked()
    step = run.state.current_step_or_last
    assert (step and step.step_type, run.state.should_stop) == (None, False), "the model is being asked"
    run.answer("", call("a"))
    assert not run.state.should_stop, "its call is running"
    run.says("and this").returns("a")
    assert not run.state.should_stop, "hooks after the step"
    run.hooked()
    assert (run.state.running.current_step, run.state.should_stop) == (None, False), "between two steps"
    run.hooked().answer("I am done").says("wait")
    assert not run.state.should_stop, "somebody waits for an answer"
    run.hooked().hooked().answer("now")
    assert run.state.should_stop
    run.hooked()
    assert (run.state.status, run.state.should_stop) == (ExecutionStatus.IN_PROGRESS, True), "its last hooks"
    assert run.hooked().state.should_stop, "it has ended"


def test_a_stop_that_lets_the_step_finish_is_told_before_the_answer() -> None:
    assert Run().begin().stop(mode="after_step").state.should_stop


def test_a_step_that_runs_in_spite_of_a_stop_is_not_to_stop_before_its_answer() -> None:
    run = Run(ExecutionBudget(max_steps=1), hooks=[hook_at(Trigger.AFTER_STEP)])
    run.begin().answer("", call("a")).returns("a").hooked(Changes(go_on=True))
    assert (run.state.stop_reason, run.state.should_stop) == (StopReason.STEPS_LIMIT, False)
    assert run.answer("", call("b")).state.should_stop, "once it is complete, unless somebody asks again"


def test_errors_are_told_in_order_and_once() -> None:
    other = ErrorRecord(type="Other", message="x", source="test")
    run = Run().begin().answer("", call("a"), call("b")).fails("b", other).fails("a", BOOM)
    run.answer("", call("c")).fails("c", BOOM).model_fails(ErrorRecord(type="End", message="", source="model"))
    assert [error.type for error in run.state.errors] == ["Boom", "Other", "End"]


def test_the_current_response_falls_back_to_the_latest_words_of_the_assistant() -> None:
    run = Run().begin().answer("first words", call("a")).returns("a").answer("", call("b"))
    assert run.state.final_response == ""
    assert run.state.current_response == "first words"
    run.returns("b").answer("done")
    assert run.state.current_response == "done"


def test_a_stopped_run_has_no_final_response() -> None:
    run = Run(ExecutionBudget(max_steps=1)).begin().answer("looking", call("a")).returns("a")
    assert not run.state.has_final_response
    assert run.state.current_response == "looking"


def test_debug_tells_the_few_facts_one_asks_for_first() -> None:
    assert NEW.debug() == {
        "status": "pending",
        "execution_count": 0,
        "has_execution": False,
        "execution_id": None,
        "steps": 0,
        "continuation": "no execution",
        "has_errors": False,
        "errors": [],
        "errors_total": 0,
        "usage": NEW.usage.model_dump(),
        "cost": 0.0,
        "unpriced": [],
        "waiting": [],
        "warnings": [],
    }
    told = Run().begin().answer("", call("a")).fails("a").stop("enough").state.debug()
    assert told["continuation"] == "user_requested: enough"
    assert (told["status"], told["steps"], told["errors"]) == ("stopped", 1, ["Boom: it broke"])


def test_every_status_knows_whether_it_is_the_end() -> None:
    assert [status.value for status in ExecutionStatus if status.is_terminal] == ["completed", "stopped", "failed"]


def test_an_execution_restored_mid_run_is_the_same_and_can_go_on() -> None:
    run = Run().begin().answer("", call("a"), call("b")).returns("b")
    run.state = AgentState.from_dict(json.loads(json.dumps(run.state.to_dict())))
    run.returns("a").answer("done")
    assert run.state.status is ExecutionStatus.COMPLETED
    assert list(run.answers) == ["a", "b"]


def test_states_that_differ_in_one_message_are_not_equal() -> None:
    one = NEW.with_messages(Message(role="user", content="a"), at=START)
    assert one != NEW.with_messages(Message(role="user", content="b"), at=START)
    assert one == NEW.with_messages(Message(role="user", content="a"), at=START)


def test_an_execution_and_a_context_refuse_unknown_fields() -> None:
    with pytest.raises(ValidationError, match="extra"):
        AgentContext.model_validate({"extra": 1})
    with pytest.raises(ValidationError, match="execution_id"):
        ExecutionState(execution_id="x", status=ExecutionStatus.PENDING, started_at=START)


def test_a_reason_is_only_told_of_what_has_ended_or_been_signalled() -> None:
    assert Run().begin().state.stop_reason is None
    assert Run().begin().stop(mode="after_step").state.stop_reason is StopReason.USER_REQUESTED
