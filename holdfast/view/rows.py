"""The rows that reports, tables and exports are made of: steps with their calls, messages, subagents, a summary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from pydantic import AwareDatetime, JsonValue

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.execution_state import ExecutionStatus, call_name, named_id
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.subagents import SPAWN_TOOL
from holdfast.core.base.frozen import Frozen
from holdfast.core.base.json_values import JsonMap
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import (
    AgentStep,
    AgentStepType,
    CallStage,
    ErrorRecord,
    OpenCall,
    StepExecution,
    ToolExecution,
)
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.conversation.verdicts import Approval
from holdfast.core.wire.execution_record import asked_of

if TYPE_CHECKING:
    from holdfast.client.run_trees import ExecutionTree

UNDER_WAY: Literal["under_way"] = "under_way"


class CallRow(Frozen):
    """One requested tool call, ended or under way.

    `outcome` is the end's, or how far the call has come: `waiting`, `approval`, `running` and so on. `result` is what
    the tool gave.
    """

    id: str
    tool: str
    arguments: JsonMap
    outcome: str
    started_at: AwareDatetime | None = None
    completed_at: AwareDatetime | None = None
    seconds: float | None = None
    result: str | None = None
    error: ErrorRecord | None = None
    approval: Approval | None = None
    usage: Usage = Usage()
    cost: float = 0.0
    unpriced: tuple[str, ...] = ()
    """The models whose tokens have no known price; they are not in `cost`."""


class StepRow(Frozen):
    """One step: a model call with the tool calls that it asked for, in that order.

    `completed_at` is missing while it is under way.
    """

    number: int
    kind: AgentStepType | Literal["under_way"]
    started_at: AwareDatetime | None
    completed_at: AwareDatetime | None
    seconds: float | None
    model: str
    text: str
    calls: tuple[CallRow, ...]
    errors: tuple[ErrorRecord, ...]
    usage: Usage
    cost: float
    unpriced: tuple[str, ...]


class SubagentRow(Frozen):
    """The run of a subagent, and below it those that it has started itself."""

    execution_id: str
    agent: str
    status: str
    started_at: AwareDatetime | None
    seconds: float | None
    steps: int | None
    usage: Usage
    cost: float
    unpriced: tuple[str, ...]
    why: str
    subagents: tuple[SubagentRow, ...] = ()


class RunSummary(Frozen):
    """What one wants to know of a run first."""

    execution_id: str
    agent_id: str
    parent_agent_id: str | None
    agent: str
    task: str
    status: ExecutionStatus
    stop_reason: StopReason | None
    why: str
    answer: str
    started_at: AwareDatetime
    completed_at: AwareDatetime | None
    seconds: float
    seconds_used: float
    """How many of them count toward `max_seconds`."""
    step_count: int
    steps_used: int
    usage: Usage
    cost: float
    unpriced: tuple[str, ...]
    budget: ExecutionBudget
    warnings: tuple[str, ...]


def summary_of(state: AgentState, agent: str) -> RunSummary:
    """Return the summary of the agent's execution; ValueError where it has none."""
    execution, signal = state.running, state.stop_signal
    taken = state.execution_duration
    return RunSummary(
        execution_id=execution.execution_id,
        agent_id=state.agent_id,
        parent_agent_id=state.parent_agent_id,
        agent=agent,
        task=asked_of(state),
        status=state.status,
        stop_reason=state.stop_reason,
        why=execution.error.message if execution.error else signal.message if signal else "",
        answer=state.final_response,
        started_at=execution.started_at,
        completed_at=execution.completed_at,
        seconds=taken.total_seconds() if taken else 0.0,
        seconds_used=execution.seconds_used(state.updated_at),
        step_count=state.step_count,
        steps_used=state.steps_used,
        usage=state.usage,
        cost=state.cost,
        unpriced=execution.unpriced,
        budget=execution.budget,
        warnings=state.warnings,
    )


def step_rows(state: AgentState) -> Iterator[StepRow]:
    """Yield the steps in order, the one under way last."""
    yield from map(completed_row, state.step_executions)
    if (row := current_row(state)) is not None:
        yield row


def completed_row(done: StepExecution) -> StepRow:
    """Return the row of a step that is complete."""
    step = done.step
    places = {call.id: place for place, call in enumerate(step.requested_tool_calls)}
    ended = sorted(step.tool_executions, key=lambda each: places.get(each.call.id, len(places)))
    calls = tuple(map(_ended_call, ended))
    return _row(step, step.step_type or UNDER_WAY, calls, done.started_at, done.completed_at)


def current_row(state: AgentState) -> StepRow | None:
    """Return the row of the step under way; none where there is none, also without the state's bulk."""
    execution = state.execution
    step = execution.current_step if execution else None
    if execution is None or step is None:
        return None
    ended = {each.call.id: _ended_call(each) for each in step.tool_executions}
    under_way = {each.call.id: _open_call(each) for each in execution.open_calls}
    asked = [call.id for call in step.requested_tool_calls]
    calls = tuple({**under_way, **ended}[each] for each in asked if each in ended or each in under_way)
    return _row(step, UNDER_WAY, calls, execution.current_step_started_at, None)


def messages_of(state: AgentState) -> Iterator[dict[str, JsonValue]]:
    """Yield the conversation as JSON-ready data, each message with the section it stands in."""
    for section in state.store.sections:
        yield from (message_data(section.name, each) for each in section.messages)


def message_data(section: str, message: Message) -> dict[str, JsonValue]:
    """Return a message as JSON-ready data."""
    return {"section": section, **message.model_dump(mode="json")}


def subagent_rows(trees: Iterable[ExecutionTree]) -> tuple[SubagentRow, ...]:
    """Return the rows of subagents' runs as the server lists them."""
    return tuple(
        SubagentRow(
            execution_id=each.execution_id,
            agent=each.agent,
            status=each.status,
            started_at=each.started_at,
            seconds=each.seconds,
            steps=each.steps,
            usage=each.usage,
            cost=each.cost,
            unpriced=each.unpriced,
            why=each.why,
            subagents=subagent_rows(each.children),
        )
        for each in trees
    )


def subagents_told(state: AgentState) -> tuple[SubagentRow, ...]:
    """Return what a state itself knows of its subagents, for where the server has forgotten their runs."""
    found: list[SubagentRow] = []
    for step in state.steps:
        places = {call.id: place for place, call in enumerate(step.requested_tool_calls)}
        spawned = (each for each in step.tool_executions if each.call.name == SPAWN_TOOL and each.ran)
        found += (_spawned(state.running.execution_id, step.number, places[each.call.id], each) for each in spawned)
    return tuple(found)


def _spawned(execution_id: str, number: int, place: int, call: ToolExecution) -> SubagentRow:
    return SubagentRow(
        execution_id=named_id(execution_id, call_name(number, place)),
        agent=str(call.call.arguments.get("agent", "")),
        status=call.outcome,
        started_at=call.started_at,
        seconds=_seconds(call.started_at, call.completed_at),
        steps=None,
        usage=call.usage,
        cost=call.cost,
        unpriced=call.unpriced,
        why=call.error.message if call.error else "",
    )


def _row(
    step: AgentStep,
    kind: AgentStepType | Literal["under_way"],
    calls: Sequence[CallRow],
    started_at: datetime | None,
    completed_at: datetime | None,
) -> StepRow:
    said = step.inference_response or step.partial_response
    return StepRow(
        number=step.number,
        kind=kind,
        started_at=started_at,
        completed_at=completed_at,
        seconds=_seconds(started_at, completed_at),
        model=said.model if said else "",
        text=said.text if said else "",
        calls=tuple(calls),
        errors=step.errors,
        usage=step.usage,
        cost=step.cost,
        unpriced=step.unpriced,
    )


def _ended_call(ended: ToolExecution) -> CallRow:
    return CallRow(
        id=ended.call.id,
        tool=ended.call.name,
        arguments=ended.call.arguments,
        outcome=ended.outcome,
        started_at=ended.started_at,
        completed_at=ended.completed_at,
        seconds=_seconds(ended.started_at, ended.completed_at),
        result=ended.result,
        error=ended.error,
        approval=ended.approval,
        usage=ended.usage,
        cost=ended.cost,
        unpriced=ended.unpriced,
    )


def _open_call(each: OpenCall) -> CallRow:
    if each.ended is not None and each.stage is CallStage.AFTER_TOOL:
        return _ended_call(each.ended)
    told: Mapping[str, Any] = {"id": each.call.id, "tool": each.call.name, "arguments": each.call.arguments}
    return CallRow(**told, outcome=each.stage, started_at=each.started_at, approval=each.approval)


def _seconds(began: datetime | None, ended: datetime | None) -> float | None:
    return None if began is None or ended is None else max(0.0, (ended - began).total_seconds())
