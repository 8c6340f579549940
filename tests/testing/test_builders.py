"""The builders: states of every status that the real loop made, the same from the same words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.local import LocalDriver
from holdfast.testing import (
    ScriptedModel,
    a_call,
    a_message,
    a_response,
    a_state,
    a_step,
    an_error,
    assert_completed,
    assert_every_call_answered,
    assistant,
    numbered_ids,
    say,
    ticking_clock,
    user,
)

LEAST = {"completed": 1, "failed": 0, "stopped": 0, "in_progress": 0}


@pytest.mark.parametrize("status", LEAST)
@pytest.mark.parametrize("more", [0, 1, 4])
def test_a_state_has_the_status_and_the_steps_that_were_asked_for(status: str, more: int) -> None:
    steps = LEAST[status] + more
    state = a_state(steps=steps, status=status)
    assert (state.status, state.step_count) == (ExecutionStatus(status), steps)
    assert state == a_state(steps=steps, status=status), "equal words gave unequal states"
    assert AgentState.from_dict(state.to_dict()) == state
    assert_every_call_answered(state)


def test_a_conversation_is_an_execution_per_question() -> None:
    said = [user("One?"), assistant("1."), user("Two?"), assistant("2.")]
    state = a_state(conversation=said)
    assert [(message.role, message.content) for message in state.messages] == [(m.role, m.content) for m in said]
    assert (state.execution_count, state.final_response) == (2, "2.")


def test_a_question_without_an_answer_is_answered_where_the_run_is_completed() -> None:
    assert_completed(a_state(conversation=[user("One?")]), answer="Nothing.")


def test_a_session_between_two_executions_is_pending() -> None:
    state = a_state(conversation=[user("One?"), assistant("1.")], status="pending")
    assert (state.status, state.execution, state.execution_count) == (ExecutionStatus.PENDING, None, 1)
    assert a_state(status="pending").execution_count == 0


def test_a_run_under_way_waits_for_the_model() -> None:
    state = a_state(conversation=[user("One?"), assistant("1."), user("Two?")], steps=2, status="in_progress")
    assert state.running.current_step is not None
    assert state.running.current_step.number == 3
    assert state.messages[2].content == "Two?"


def test_a_run_is_stopped_for_the_reason_asked_for_or_by_its_budget() -> None:
    assert a_state(status="stopped", reason=StopReason.STOP_REQUESTED).stop_reason is StopReason.STOP_REQUESTED
    limited = a_state(steps=2, status="stopped", budget=ExecutionBudget(max_steps=2))
    assert (limited.stop_reason, limited.step_count) == (StopReason.STEPS_LIMIT, 2)


def test_usage_and_agent_are_as_given() -> None:
    agent = AgentDefinition(name="clerk", system_prompt="Look it up.")
    state = a_state(steps=2, agent=agent, usage=Usage(input_tokens=1, output_tokens=2))
    assert state.usage == Usage(input_tokens=2, output_tokens=4)
    assert (state.context.system_prompt, state.metadata["agent"]) == ("Look it up.", "clerk")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"conversation": [assistant()]}, "message 0 of the conversation is of 'assistant', not 'user'"),
        ({"conversation": [user(), user()]}, "message 1 of the conversation is of 'user'"),
        ({"conversation": [a_message(role="system")]}, "'system'"),
        ({"conversation": [user(), assistant()], "status": "stopped"}, "a run that is stopped has not answered"),
        ({"steps": 0}, "a run that is completed cannot have 0 steps"),
        ({"steps": -1, "status": "stopped"}, "-1 steps"),
        ({"steps": 1, "status": "pending"}, "has no steps, not 1"),
        ({"steps": 10_001}, "at most 10,000"),
        ({"steps": 3, "budget": ExecutionBudget(max_steps=2)}, r"stopped after 2 steps \(steps_limit\)"),
    ],
)
def test_what_no_run_can_come_to_is_refused(words: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        a_state(**words)


def test_an_unknown_status_is_refused() -> None:
    with pytest.raises(ValueError, match="asleep"):
        a_state(status="asleep")


def test_a_step_is_what_the_loop_makes_of_an_answer() -> None:
    assert (a_step().step_type, a_step(text="Here.").output_messages[0].content) == ("final_response", "Here.")
    asking = a_step(a_call("add", a=1), result="3")
    assert (asking.step_type, asking.tool_executions[0].result) == ("tool_execution", "3")
    failing = a_step(a_call("add", "x"), a_call("add", "y"), error=an_error("no", kind="Refused"))
    assert (failing.step_type, [error.type for error in failing.all_errors]) == ("error", ["Refused"])


def test_small_values_take_few_words() -> None:
    assert a_message("Hi") == user("Hi") == Message(role="user", content="Hi")
    assert a_response("", a_call(a=1)).finish_reason == "tool_calls"
    assert a_response("x", finish_reason="length", usage=Usage()).usage == Usage()


async def test_fixed_ids_and_a_ticking_clock_make_a_drivers_run_repeatable() -> None:
    async def run() -> AgentState:
        model = ScriptedModel([say("Here.")])
        driver = LocalDriver(AgentDefinition(name="a"), model=model, new_id=numbered_ids(), clock=ticking_clock())
        return await driver.execute("Where?")

    first = await run()
    assert first == await run()
    assert first.created_at == datetime(2025, 1, 1, 12, tzinfo=UTC)
