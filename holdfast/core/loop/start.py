"""How an execution begins, resumes, or goes on by other rules: the transition it starts from. Asks for nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.core.agent.execution_state import ExecutionState, ExecutionStatus
from holdfast.core.agent.hooks import ENDING
from holdfast.core.agent.initial_state import as_defined
from holdfast.core.agent.state import AgentState
from holdfast.core.base.frozen import replace
from holdfast.core.loop import headroom
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
from holdfast.core.loop.pending_messages import keep_message, take_metadata
from holdfast.core.loop.transition import Transition
from holdfast.core.wire.execution_events import AgentExecutionStarted

FROM_OUTSIDE: Final = (MessageArrived, StopRequested, TimerFired, ApprovalDecided, ApprovalExpired, DecisionUnreadable)
"""What says nothing of the end of anything that was asked for."""


def begun(rules: Rules, state: AgentState, event: ExecutionStarted) -> Transition:
    """Begin another execution (docs/spec.md, section 1)."""
    execution = ExecutionState(
        execution_id=event.execution_id,
        status=ExecutionStatus.IN_PROGRESS,
        started_at=event.at,
        budget=event.budget,
    )
    state = state.changed(event.at, execution=execution, execution_count=state.execution_count + 1)
    transition = Transition(rules, state, execution, event.at)
    take_metadata(transition, event.metadata)
    transition.tell(AgentExecutionStarted, agent=rules.definition.name, resumed=False)
    headroom.count_opening(transition)
    transition.say(event.messages)
    return transition


def taken_up(rules: Rules, state: AgentState, event: ExecutionStarted) -> Transition:
    """Go on with an execution that was under way (docs/spec.md, section 1)."""
    transition = Transition(rules, state, state.running, event.at)
    take_metadata(transition, event.metadata)
    transition.tell(AgentExecutionStarted, agent=rules.definition.name, resumed=True)
    for message in event.messages:
        keep_message(transition, message)
    return transition


def changed(rules: Rules, state: AgentState, event: DefinitionChanged) -> Transition:
    """Give the agent its new definition, and the execution its new budget.

    Notes that the old definition made and the new one does not stay.
    """
    before = state.running
    execution = replace(before, budget=before.budget if event.budget is None else event.budget)
    state = as_defined(state, event.definition, event.at).changed(event.at, execution=execution)
    transition = Transition(rules, state, execution, event.at)
    headroom.count_opening(transition)
    return transition


def between_steps(state: AgentState) -> bool:
    """Return whether `state` stands before a model call: all that was asked for has ended, or is the next step's own.

    Whether that has been begun already, only the driver knows.
    """
    execution = state.execution
    if execution is None or execution.status.is_terminal or execution.cancelling or execution.open_calls:
        return False
    return execution.current_step is None or execution.current_step.inference_response is None


def rests(execution: ExecutionState) -> bool:
    """Return whether nothing at all is under way: the loop stands between two steps until it is told to go on."""
    busy = execution.status.is_terminal or execution.cancelling or execution.current_step is not None
    return not busy and execution.hooks_under_way is None and bool(execution.step_executions)


def may_change(state: AgentState, waiting: Iterable[Event]) -> bool:
    """Return whether a DefinitionChanged would be taken in now, where nothing is under way.

    Not where the execution is ending, nor where the end of something that was asked for is among the events `waiting`.
    """
    if not between_steps(state) or state.running.hooks_under_way in ENDING:
        return False
    return all(isinstance(event, FROM_OUTSIDE) for event in waiting)
