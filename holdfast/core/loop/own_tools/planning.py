"""Having a plan made: an agent that plans is called, and its plan becomes the list of what is to do."""

from __future__ import annotations

from typing import Final

from pydantic import Field, ValidationError

from holdfast.core.agent.assistants import plan_of, planner
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.subagents import SPAWN_TOOL, problem_with_number, subagent_outcome
from holdfast.core.base.frozen import Frozen
from holdfast.core.base.validation_errors import problems_text
from holdfast.core.conversation.steps import CallStage, ErrorRecord, OpenCall
from holdfast.core.conversation.todos import PLANNED, todo_text
from holdfast.core.loop.events import SubagentReturned
from holdfast.core.loop.own_tools import agent_calls, todo_list
from holdfast.core.loop.transition import Transition

TASK_CHARS_MAX: Final = 20_000
"""The longest task to plan, in characters: the question of whoever plans."""


class PlanRequest(Frozen):
    """What a call asks for."""

    task: str = Field(
        min_length=1,
        max_length=TASK_CHARS_MAX,
        pattern=r"\S",
        description="what is to be planned, with all that one needs to know; nothing else is known there",
    )


def begin(
    transition: Transition, each: OpenCall, *, again: bool = False
) -> tuple[str | None, ErrorRecord | None] | OpenCall:
    """Return the call with whoever plans at work, or why nobody does; `again` where it has been counted already."""
    name, child = each.call.name, planner(transition.rules.definition, transition.rules.assistants)
    try:
        request = PlanRequest.model_validate(dict(each.call.arguments))
    except ValidationError as error:
        return None, ErrorRecord(type="InvalidArguments", message=problems_text(error), source=name)
    if child is None or transition.rules.depth < 1:
        text = "agents must not nest any deeper than this one; plan it yourself, with write_todos"
        return None, ErrorRecord(type="SubagentTooDeep", message=text, source=name)
    if not again:
        if (problem := _one_too_many(transition, each)) is not None:
            return None, problem
        transition.change(subagents_started=transition.execution.subagents_started + 1)
    agent_calls.spawn(transition, each, child, request.task, assistant=True)
    return each


def _one_too_many(transition: Transition, each: OpenCall) -> ErrorRecord | None:
    others = [one for one in transition.execution.open_calls if one.index != each.index and _counts(transition, one)]
    running = sum(one.stage is CallStage.RUNNING for one in others)
    return problem_with_number(len(others), transition.execution.subagents_started - running)


def _counts(transition: Transition, one: OpenCall) -> bool:
    """Return whether an agent works for that call, or is yet to: a spawn that waits was let in as it was asked for."""
    running = one.stage is CallStage.RUNNING and agent_calls.runs_agent(transition, one)
    waits = one.stage in (CallStage.WAITING, CallStage.BEFORE_TOOL, CallStage.APPROVAL)
    return running or (waits and one.call.name == SPAWN_TOOL)


def take_in(transition: Transition, each: OpenCall, event: SubagentReturned) -> tuple[str | None, ErrorRecord | None]:
    """Make the plan the list of what is to do; return what the model is told."""
    agent = agent_calls.agent_of(transition, each)
    if event.status is not ExecutionStatus.COMPLETED:
        result, error = subagent_outcome(agent, event.status, event.answer, event.why)
        if error is None:  # of a subagent what it came to is a result; of a planner there is no plan
            text = f"{(result or '').strip('[]')}; the list is as it was"
            error = ErrorRecord(type="PlannerStopped", message=text, source=each.call.name)
        return None, error
    todos, problem = plan_of(event.answer)
    if problem:
        text = f"the plan of {agent!r} cannot be read: {problem}; the list is as it was"
        return None, ErrorRecord(type="PlanUnreadable", message=text, source=each.call.name)
    todo_list.change(transition, todos)
    return f"{PLANNED}{todo_text(todos)}", None
