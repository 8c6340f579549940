"""How a step and an execution end: answer judged, step archived, final status (docs/spec.md, sections 2 and 3)."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.frozen import trusted
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import AgentStepType, ErrorRecord, StepExecution
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.commands import Finish
from holdfast.core.loop.transition import Transition
from holdfast.core.wire.execution_events import (
    AgentExecutionCompleted,
    AgentExecutionFailed,
    AgentExecutionStopped,
    AgentStepCompleted,
    TokenUsageReported,
)

INVALID_ANSWER: Final = "InvalidAnswer"
"""The type of the error of a final answer that breaks the response format."""


def judge_answer(turn: Transition) -> None:
    """Look at what the step came to: an answer of the wrong form, one that ended early, an error that is fatal."""
    response = turn.step.inference_response
    if response is not None and not response.tool_calls:
        if response.finish_reason in turn.rules.definition.finish_reasons:
            text = f"the model's answer ended with {response.finish_reason!r}"
            turn.signal_once(StopReason.FINISH_REASON, text, "model", finish_reason=response.finish_reason)
        if response.format_problem is not None:
            _reask(turn, response.format_problem)
    judge_errors(turn)


def judge_errors(turn: Transition) -> None:
    """Fail the execution for an error of the step, where the definition says that errors are fatal."""
    errors = turn.step.all_errors
    if errors and turn.rules.definition.errors == "fatal":
        turn.fail(errors[0])


def _reask(turn: Transition, problem: str) -> None:
    """Tell the model what is wrong with its answer, or stop when it was told often enough."""
    error = ErrorRecord(type=INVALID_ANSWER, message=problem, source="model")
    turn.change_step(errors=(*turn.step.errors, error))
    asked, allowed = turn.execution.reasks, turn.rules.definition.reasks_max
    if asked >= allowed:
        text = f"the answer breaks the response format after {asked} re-asks: {problem}"
        facts: dict[str, JsonValue] = {"limit": "reasks_max", "used": asked, "allowed": allowed}
        turn.signal_once(StopReason.RETRY_LIMIT, text, "response_format", **facts)
        return
    text = f"Your answer cannot be used: {problem}\nAnswer again, in the required form and with nothing else."
    said = Message(role="user", content=text, metadata={"is_trace": True})
    turn.change(reasks=asked + 1, waiting_messages=(*turn.execution.waiting_messages, said), answer_due=True)


def more_to_do(turn: Transition) -> bool:
    """Return whether the loop goes on by itself: tools were asked for, or a message waits that must be answered.

    Those are messages from outside and our own re-asks; what a hook says does not keep the loop going.
    """
    return bool(turn.step.requested_tool_calls) or turn.execution.answer_due


def archive(turn: Transition, *, overridden: bool = False) -> None:
    """Move the step from under way to archived: say its messages, keep it, forget the continuation request.

    `overridden` says that the loop goes on only because of that request.
    """
    step, execution = turn.step, turn.execution
    final = step.step_type is AgentStepType.FINAL_RESPONSE
    tags = {"step_id": step.id} if final else {"step_id": step.id, "is_trace": True}
    turn.say(step.output_messages, **tags)
    done = trusted(
        StepExecution,
        step=step,
        started_at=execution.current_step_started_at or turn.at,
        completed_at=turn.at,
        continuation=execution.continuation,
    )
    turn.tell(
        AgentStepCompleted,
        step=step,
        started_at=done.started_at,
        completed_at=done.completed_at,
        duration_seconds=done.duration.total_seconds(),
        usage=step.usage,
    )
    turn.tell(
        TokenUsageReported,
        usage=step.usage,
        cost=step.cost,
        total=execution.usage,
        total_cost=execution.cost,
        unpriced=step.unpriced,
        total_unpriced=execution.unpriced,
    )
    turn.change(
        step_executions=execution.step_executions.append(done),
        continuation=execution.continuation.after_step(overridden=overridden),
        current_step=None,
        current_step_started_at=None,
        open_calls=(),
    )


def conclude(turn: Transition) -> None:
    """Give the execution its final status, by the first row that holds (docs/spec.md, section 2).

    Errors that are fatal have been judged as their step ended (`judge_errors`).
    """
    execution = turn.execution
    highest = execution.continuation.highest
    if execution.error is not None:
        status = ExecutionStatus.FAILED
    elif highest is not None and highest.reason.forced:
        status = ExecutionStatus.STOPPED
    else:
        status = ExecutionStatus.COMPLETED
    turn.change(status=status, completed_at=turn.at)
    _tell_end(turn, status)
    turn.do(Finish())


def tell_stopped(turn: Transition) -> None:
    """Tell that the loop has ended, once in each execution; the hooks of the end can still change how it is judged."""
    turn.tell(AgentExecutionStopped, **_reason(turn))


def _tell_end(turn: Transition, status: ExecutionStatus) -> None:
    if not turn.rules.observed:
        return
    if turn.execution.error is not None:
        turn.tell(AgentExecutionFailed, error=turn.execution.error)
    else:
        turn.tell(AgentExecutionCompleted, answer=turn.state.final_response, status=status, **_reason(turn))


def _reason(turn: Transition) -> dict[str, StopReason | str]:
    highest = turn.execution.continuation.highest
    if highest is None:
        return {"reason": StopReason.COMPLETED, "message": ""}
    return {"reason": highest.reason, "message": highest.message}
