"""Starts the transition of an execution that begins, resumes, or gets a new definition. Issues no commands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.core.agent.execution_state import ExecutionState, ExecutionStatus
from holdfast.core.agent.hooks import ENDING
from holdfast.core.agent.initial_state import as_defined
from holdfast.core.agent.state import AgentState
from holdfast.core.base.frozen import replace
from holdfast.core.loop import handoffs, headroom
from holdfast.core.loop.events import (
    ApprovalDecided,
    ApprovalExpired,
    DecisionUnreadable,
    DefinitionChanged,
    Event,
    ExecutionStarted,
    MessageArrived,
    StopRequested,
    TimerFired,
)
from holdfast.core.loop.execution_rules import Rules
from holdfast.core.loop.own_tools import todo_list
from holdfast.core.loop.pending_messages import merge_metadata, queue_message
from holdfast.core.loop.transition import Transition
from holdfast.core.wire.execution_events import AgentExecutionStarted, McpToolsChanged

FROM_OUTSIDE: Final = (MessageArrived, StopRequested, TimerFired, ApprovalDecided, ApprovalExpired, DecisionUnreadable)
"""Events that report no end of a call."""


def begun(rules: Rules, state: AgentState, event: ExecutionStarted) -> Transition:
    """Begin another execution (docs/spec.md, section 1)."""
    execution = ExecutionState(
        execution_id=event.execution_id,
        status=ExecutionStatus.IN_PROGRESS,
        started_at=event.at,
        budget=event.budget,
        tenant=event.tenant,
        mcp_processes=state.execution.mcp_processes if state.execution else {},
        workspace_base=state.workspace,
        todos_base=state.todos,
    )
    state = _with_catalog(state, event).changed(
        event.at, execution=execution, execution_count=state.execution_count + 1
    )
    transition = Transition(rules, state, execution, event.at)
    merge_metadata(transition, event.metadata)
    transition.emit(AgentExecutionStarted, agent=rules.definition.name, resumed=False)
    _report_changes(transition, event)
    headroom.count_opening(transition)
    transition.add_messages(event.messages)
    todo_list.show_again(transition)
    return transition


def taken_up(rules: Rules, state: AgentState, event: ExecutionStarted) -> Transition:
    """Resume an execution that was under way (docs/spec.md, section 1)."""
    transition = Transition(rules, _with_catalog(state, event), state.running, event.at)
    if event.tenant:
        transition.change(tenant=event.tenant)
    merge_metadata(transition, event.metadata)
    transition.emit(AgentExecutionStarted, agent=rules.definition.name, resumed=True)
    _report_changes(transition, event)
    for message in event.messages:
        queue_message(transition, message)
    return transition


def changed(rules: Rules, state: AgentState, event: DefinitionChanged) -> Transition:
    """Give the agent its new definition, and the execution its new budget.

    Metadata of the old definition stays where the new one has none. Handoffs are over, unless the change is one.
    """
    before = state.running
    execution = replace(before, budget=before.budget if event.budget is None else event.budget)
    state = as_defined(state, event.definition, event.at, handoff=event.handoff).changed(event.at, execution=execution)
    transition = Transition(rules, _with_catalog(state, event), execution, event.at)
    _report_changes(transition, event)
    headroom.count_opening(transition)
    if event.handoff:
        handoffs.take_place(transition)
    else:
        transition.handover = None
        transition.change(handing_over=None)
    return transition


def _with_catalog(state: AgentState, event: ExecutionStarted | DefinitionChanged) -> AgentState:
    """Return the state with the catalog of MCP tools that the execution has now; without any it keeps the last one."""
    return state if event.mcp is None else state.changed(event.at, mcp_catalog=event.mcp.digest)


def _report_changes(transition: Transition, event: ExecutionStarted | DefinitionChanged) -> None:
    """Emit what changed at the MCP servers since the agent's last catalog, and warn of it: people read the warnings."""
    for each in event.mcp.changes if event.mcp else ():
        facts = {"added": each.added, "removed": each.removed, "changed": each.changed, "more": each.more}
        transition.emit(McpToolsChanged, server=each.server, **facts)
        how = f"`holdfast mcp {each.server} --since RUN` shows how"
        transition.warn(f"the MCP server {each.server!r} has other tools than this agent had: {each.line}; {how}")


def between_steps(state: AgentState) -> bool:
    """Return whether `state` is before a model call: all calls have ended, or belong to the next step.

    Only the driver knows whether that has begun already.
    """
    execution = state.execution
    if execution is None or execution.status.is_terminal or execution.cancelling or execution.open_calls:
        return False
    return execution.current_step is None or execution.current_step.inference_response is None


def rests(execution: ExecutionState) -> bool:
    """Return whether nothing at all is under way: the loop rests between two steps until `StepDue`."""
    busy = execution.status.is_terminal or execution.cancelling or execution.current_step is not None
    waits = execution.hooks_under_way is not None or execution.handing_over is not None
    return not busy and not waits and bool(execution.step_executions)


def may_change(state: AgentState, waiting: Iterable[Event]) -> bool:
    """Return whether a DefinitionChanged would apply now, if nothing is under way.

    It would not while the execution is ending, or while the end of a call is among the events `waiting`.
    """
    if not between_steps(state) or state.running.hooks_under_way in ENDING:
        return False
    return all(isinstance(event, FROM_OUTSIDE) for event in waiting)
