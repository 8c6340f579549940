"""Accessors of `AgentState` by their values in one run, mutators by what they leave alone (docs/spec.md, section 1)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.execution_state import AgentContext, ExecutionState, ExecutionStatus
from holdfast.core.agent.hooks import Changes, Trigger
from holdfast.core.agent.policies import JsonObjectFormat
from holdfast.core.agent.state import ERRORS_SHOWN_MAX, AgentState
from holdfast.core.base.frozen import replace
from holdfast.core.base.usage import Prices, Usage
from holdfast.core.conversation.messages import MessageStore, user_message
from holdfast.core.conversation.stop_reasons import Continuation, StopReason
from holdfast.core.loop.events import ExecutionStarted
from tests.core.building import AGENT_ID, BOOM, DEFINITION, USAGE, Run, call, moment
from tests.core.ruled import Ruled

PRICED = replace(DEFINITION, llm=LLM(model="m", prices=Prices(input_usd=1, output_usd=1)), metadata={"team": "red"})
BUDGET = ExecutionBudget(max_steps=20, max_tokens=10_000, max_seconds=60)


def worked() -> Run:
    """Two steps: one with a result and an error, and the final answer."""
    run = Ruled(PRICED, budget=BUDGET).begin().answer("looking", call("a"), call("b")).returns("a", "1").fails("b")
    return run.answer("done")


ACCESSORS: dict[str, Callable[[AgentState], object]] = {
    "messages": lambda state: state.context.store.section("messages").messages,
    "store": lambda state: state.context.store,
    "metadata": lambda _: {"team": "red", "agent": "tester"},
    "status": lambda _: ExecutionStatus.COMPLETED,
    "step_count": lambda _: 2,
    "steps": lambda state: tuple(done.step for done in state.running.step_executions),
    "step_executions": lambda state: state.running.step_executions,
    "last_step": lambda state: state.steps[1],
    "last_step_type": lambda _: "final_response",
    "last_step_usage": lambda _: USAGE,
    "last_step_duration": lambda _: timedelta(seconds=1),
    "last_step_errors": lambda _: (),
    "last_step_tool_executions": lambda _: (),
    "last_tool_execution": lambda state: state.steps[0].tool_executions[1],
    "current_step_or_last": lambda state: state.steps[1],
    "usage": lambda _: USAGE + USAGE,
    "cost": lambda _: pytest.approx(0.00024),
    "errors": lambda _: (BOOM,),
    "has_errors": lambda _: True,
    "execution_duration": lambda _: timedelta(seconds=4),
    "stop_signal": lambda _: None,
    "stop_reason": lambda _: StopReason.COMPLETED,
    "last_stop_reason": lambda _: StopReason.COMPLETED,
    "should_stop": lambda _: True,
    "has_final_response": lambda _: True,
    "final_response": lambda _: "done",
    "current_response": lambda _: "done",
    "budget": lambda _: BUDGET,
    "budget_remaining": lambda _: ExecutionBudget(max_steps=18, max_tokens=9_760, max_seconds=56),
}


@pytest.mark.parametrize("name", ACCESSORS)
def test_an_accessor_tells_what_the_specification_says(name: str) -> None:
    state = worked().state
    assert getattr(state, name) == ACCESSORS[name](state)


def test_a_state_has_the_fields_of_both_lifetimes() -> None:
    session = {
        "agent_id",
        "parent_agent_id",
        "created_at",
        "updated_at",
        "execution_count",
        "llm",
        "context",
        "handover",
        "todos",
        "mcp_catalog",
        "workspace",
    }
    assert set(AgentState.model_fields) == {"format", *session, "execution"}
    assert set(AgentContext.model_fields) == {"store", "metadata", "system_prompt", "response_format"}
    named = {"execution_id", "status", "started_at", "completed_at", "budget", "step_executions", "continuation"}
    assert named | {"current_step_started_at", "current_step"} <= set(ExecutionState.model_fields)
    assert {"stop_signals", "continuation_requested"} <= set(Continuation.model_fields)


MUTATORS: dict[str, Callable[[AgentState], AgentState]] = {
    "with_messages": lambda state: state.with_messages(user_message("more"), at=moment(99)),
    "with_user_message": lambda state: state.with_user_message("more", at=moment(99)),
    "with_metadata": lambda state: state.with_metadata(at=moment(99), team="blue"),
    "with_system_prompt": lambda state: state.with_system_prompt("Be long.", at=moment(99)),
    "with_response_format": lambda state: state.with_response_format(JsonObjectFormat(), at=moment(99)),
    "with_llm": lambda state: state.with_llm(LLM(model="other"), at=moment(99)),
    "with_store": lambda state: state.with_store(MessageStore(), at=moment(99)),
    "with_execution": lambda state: state.with_execution(moment(99), usage=Usage(input_tokens=1)),
    "for_next_execution": lambda state: state.for_next_execution(moment(99)),
}


def test_no_mutator_is_forgotten_here() -> None:
    methods = {name for name, _ in inspect.getmembers(AgentState, inspect.isfunction)}
    assert {name for name in methods if name.startswith("with_")} | {"for_next_execution"} == set(MUTATORS)


@pytest.mark.parametrize("name", MUTATORS)
def test_a_mutator_returns_a_new_state_later_than_the_old_one_which_is_unchanged(name: str) -> None:
    old = worked().state
    before = old.to_dict()
    new = MUTATORS[name](old)
    assert old.to_dict() == before
    assert new is not old
    assert new != old
    assert old.updated_at < new.updated_at == moment(99)
    assert new.created_at == old.created_at
    assert MUTATORS[name](new).updated_at == moment(99)


def test_the_next_execution_keeps_everything_but_the_execution() -> None:
    ended = worked().state
    fresh = ended.for_next_execution(moment(99))
    kept: dict[str, Any] = {**ended.to_dict(), "execution": None, "updated_at": fresh.to_dict()["updated_at"]}
    assert fresh.to_dict() == kept
    assert (fresh.status, fresh.execution_count) == (ExecutionStatus.PENDING, 1)


def test_what_ended_stays_readable_until_the_next_execution_begins() -> None:
    run = Ruled(budget=ExecutionBudget(max_steps=1)).begin().answer("looking", call("a")).returns("a")
    later = run.state.with_messages(user_message("and now?"), at=moment(50)).with_metadata(at=moment(51), a=1)
    assert (later.status, later.stop_reason) == (ExecutionStatus.STOPPED, StopReason.STEPS_LIMIT)
    assert (later.step_count, later.usage) == (1, USAGE)
    run.state = later
    run.begin()
    assert (run.state.status, run.state.stop_reason) == (ExecutionStatus.IN_PROGRESS, None)
    assert (run.state.step_count, run.state.usage) == (0, Usage())


def test_two_executions_begun_from_one_state_are_the_same_where_their_inputs_are() -> None:
    run = Ruled()
    event = ExecutionStarted(AGENT_ID, (user_message("Do it."),), ExecutionBudget(), moment(1))
    one, other = run.loop.step(run.state, event), run.loop.step(run.state, event)
    assert one == other
    assert one[0].running.execution_id == AGENT_ID


def test_the_response_so_far_is_the_latest_thing_said_even_in_the_step_under_way() -> None:
    run = Ruled().begin().answer("first", call("a")).returns("a").answer("second", call("b"))
    assert (run.state.final_response, run.state.current_response) == ("", "second")
    assert run.returns("b").state.current_response == "second"
    assert run.answer(" ", call("c")).state.current_response == "second", "blank is not visible"


@pytest.mark.parametrize("how", ["at once", "in its model call", "before a step", "failed"])
def test_an_answer_belongs_to_its_execution(how: str) -> None:
    run = worked()
    assert run.state.current_response == "done"
    if how == "before a step":
        run.budget = ExecutionBudget(max_steps=0)
    run.begin("And now?")
    assert (run.state.final_response, run.state.current_response) == ("", "")
    if how == "in its model call":
        run.stop()
    elif how == "failed":
        run.model_fails()
    assert run.state.execution_count == 2
    assert (run.state.final_response, run.state.current_response) == ("", ""), (
        "what it said before is no answer to this"
    )
    assert worked().state.for_next_execution(moment(99)).current_response == "", "nor is there one before the next"


@pytest.mark.parametrize(("text", "final"), [("done", "done"), (" done ", " done "), ("", ""), (" \n\t", "")])
def test_a_final_response_is_text_that_is_not_blank(text: str, final: str) -> None:
    state = Ruled().begin().answer(text).state
    assert (state.final_response, state.has_final_response) == (final, bool(final))


def test_only_a_step_of_the_type_final_response_has_one() -> None:
    asked = Ruled().begin().answer("words beside calls", call("a")).returns("a")
    assert (asked.state.last_step_type, asked.state.final_response) == ("tool_execution", "")
    failed = Ruled().begin().answer("words beside calls", call("a")).fails("a")
    assert (failed.state.last_step_type, failed.state.final_response) == ("error", "")


def test_what_the_model_had_been_told_in_a_step_can_be_read() -> None:
    state = worked().state
    first, second = (list(state.input_messages(step)) for step in state.steps)
    assert [message.role for message in first] == ["user"]
    assert second == [message.for_model() for message in state.messages[:4]]
    assert list(state.messages[4:]) != []


def test_debug_tells_all_that_the_specification_lists() -> None:
    told = worked().state.debug()
    assert told["execution_id"] == worked().state.running.execution_id
    told.pop("execution_id")
    assert {name: told[name] for name in ("status", "execution_count", "has_execution", "steps")} == {
        "status": "completed",
        "execution_count": 1,
        "has_execution": True,
        "steps": 2,
    }
    assert (told["has_errors"], told["errors"]) == (True, ["Boom: it broke"])
    assert (told["continuation"], told["usage"]) == ("no stop signal", (USAGE + USAGE).model_dump())


def test_debug_tells_the_signals_in_one_line_and_few_errors() -> None:
    run = Ruled(hooks={Trigger.AFTER_STEP: Changes(go_on=True)})
    run.begin()
    for number in range(ERRORS_SHOWN_MAX + 5):
        run.answer("", call(f"c{number}")).fails(f"c{number}", BOOM.model_copy(update={"message": str(number)}))
    told = run.stop("enough").state.debug()
    assert told["continuation"] == "user_requested: enough"
    assert len(told["errors"]) == ERRORS_SHOWN_MAX  # type: ignore[arg-type]  # any JSON
