"""The execution events of a run, reconstructed from its state where no worker can report them. Asks nobody.

A state has the times of steps and tool calls; a model call's end is not among them, nor what hooks did, nor when the
list of what is to do changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.base.usage import NOTHING_USED
from holdfast.core.conversation.amounts import joined_models
from holdfast.core.conversation.steps import AgentStep, StepExecution
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.wire import execution_events
from holdfast.core.wire.execution_events import AnyObserved


def reconstructed(state: AgentState, agent: str) -> Iterator[AnyObserved]:
    """Yield what the state still knows of the events that led to it; nothing for an agent without an execution."""
    execution = state.execution
    if execution is None:
        return

    def envelope(at: datetime, step_number: int) -> dict[str, Any]:
        return {
            "agent_id": state.agent_id,
            "execution_id": execution.execution_id,
            "parent_agent_id": state.parent_agent_id,
            "at": at,
            "step_number": step_number,
        }

    yield execution_events.AgentExecutionStarted(**envelope(execution.started_at, 0), agent=agent, resumed=False)
    used, cost, unpriced = NOTHING_USED, 0.0, tuple[str, ...]()
    for done in state.step_executions:
        used, cost = used + done.step.usage, cost + done.step.cost
        unpriced = joined_models(unpriced, done.step.unpriced)
        for at, kind, fields in _of_step(done):
            yield kind(**envelope(at, done.step.number), **fields)
        yield execution_events.TokenUsageReported(
            **envelope(done.completed_at, done.step.number),
            usage=done.step.usage,
            total=used,
            cost=done.step.cost,
            total_cost=cost,
            unpriced=done.step.unpriced,
            total_unpriced=unpriced,
        )
        for back in (each for each in execution.steps_back if each.from_step == done.step.number):
            yield execution_events.AgentWentBack(**envelope(done.completed_at, back.from_step), step_back=back)
    if execution.completed_at is not None:
        for kind, fields in _ends(state):
            yield kind(**envelope(execution.completed_at, state.step_count), **fields)


def _of_step(done: StepExecution) -> Iterator[tuple[datetime, Any, dict[str, Any]]]:
    """Yield what happened in a step: when, the event's class, and its own fields."""
    yield done.started_at, execution_events.AgentStepStarted, {}
    for fallback in done.step.fallbacks:
        yield fallback.at, execution_events.ModelFellBack, {"fallback": fallback}
    if done.step.inference_response is not None:
        answered_at = min((each.started_at for each in done.step.tool_executions), default=done.completed_at)
        response = done.step.inference_response.without_items
        yield answered_at, execution_events.InferenceResponseReceived, {"response": response}
    calls = [each for each in _of_calls(done.step) if each[0] <= done.completed_at]
    yield from sorted(calls, key=lambda fields: fields[0])
    if done.step.judgement is not None and done.step.judgement.completed_at is not None:
        judged_at = done.step.judgement.completed_at
        yield judged_at, execution_events.AnswerJudged, {"judgement": done.step.judgement}
    times = {"started_at": done.started_at, "completed_at": done.completed_at}
    fields = {"step": done.step.without_items, **times, "usage": done.usage}
    yield (
        done.completed_at,
        execution_events.AgentStepCompleted,
        {**fields, "duration_seconds": done.duration.total_seconds()},
    )


def _of_calls(step: AgentStep) -> Iterator[tuple[datetime, Any, dict[str, Any]]]:
    for each in step.tool_executions:
        if each.approval is not None:
            approval = each.approval
            own = {name: getattr(approval, name) for name in ("decision", "by", "reason", "digest", "asked")}
            yield (approval.at, execution_events.ApprovalResolved, {"call_id": each.call.id, "call": each.call, **own})
        if each.ran:
            yield each.started_at, execution_events.ToolCallStarted, {"call": each.call}
        kind = execution_events.ToolCallBlocked if each.was_blocked else execution_events.ToolCallCompleted
        yield each.completed_at, kind, {"tool_execution": each}


def _ends(state: AgentState) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield the last events: each one's class and its own fields."""
    error, signal = state.running.error, state.stop_signal
    why = {"reason": state.stop_reason or StopReason.UNKNOWN, "message": signal.message if signal else ""}
    yield execution_events.AgentExecutionStopped, why
    if state.status is ExecutionStatus.FAILED and error is not None:
        yield execution_events.AgentExecutionFailed, {"error": error}
    else:
        yield execution_events.AgentExecutionCompleted, {"answer": state.final_response, "status": state.status, **why}
