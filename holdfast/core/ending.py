"""How a step and an execution end: judging the answer, archiving the step, the final status (SPEC section 2 and 3)."""

from __future__ import annotations

from typing import Final

from holdfast.core.commands import Finish
from holdfast.core.frozen import trusted
from holdfast.core.messages import Message
from holdfast.core.observed import (
    AgentExecutionCompleted,
    AgentExecutionFailed,
    AgentExecutionStopped,
    AgentStepCompleted,
    TokenUsageReported,
)
from holdfast.core.state import ExecutionStatus
from holdfast.core.steps import ErrorRecord, StepExecution
from holdfast.core.stopping import StopReason
from holdfast.core.turn import Turn

INVALID_ANSWER: Final = "InvalidAnswer"
"""The type of the error of a final answer that breaks the response format."""


def judge_answer(turn: Turn) -> None:
    """Look at what the step came to: an answer of the wrong form, one that ended early, an error that is fatal."""
    response = turn.step.inference_response
    if response is not None and not response.tool_calls:
        if response.finish_reason in turn.rules.definition.finish_reasons:
            text = f"the model's answer ended with {response.finish_reason!r}"
            turn.signal_once(StopReason.FINISH_REASON, text, "model")
        if response.format_problem is not None:
            _reask(turn, response.format_problem)
    judge_errors(turn)


def judge_errors(turn: Turn) -> None:
    """Fail the execution for an error of the step, where the definition says that errors are fatal."""
    errors = turn.step.all_errors
    if errors and turn.rules.definition.errors == "fatal":
        turn.fail(errors[0])


def _reask(turn: Turn, problem: str) -> None:
    """Tell the model what is wrong with its answer, or stop when it was told often enough."""
    error = ErrorRecord(type=INVALID_ANSWER, message=problem, source="model")
    turn.change_step(errors=(*turn.step.errors, error))
    asked = turn.execution.reasks
    if asked >= turn.rules.definition.reasks_max:
        text = f"the answer breaks the response format after {asked} re-asks: {problem}"
        turn.signal_once(StopReason.RETRY_LIMIT, text, "response_format")
        return
    text = f"Your answer cannot be used: {problem}\nAnswer again, in the required form and with nothing else."
    said = Message(role="user", content=text, metadata={"is_trace": True})
    turn.change(reasks=asked + 1, waiting_messages=(*turn.execution.waiting_messages, said), answer_due=True)


def more_to_do(turn: Turn) -> bool:
    """Return whether the loop goes on by itself: tools were asked for, or a message waits that must be answered.

    Those are messages from outside and our own re-asks; what a hook says does not keep the loop going.
    """
    return bool(turn.step.requested_tool_calls) or turn.execution.answer_due


def archive(turn: Turn, *, overridden: bool = False) -> None:
    """Move the step from under way to archived: say its messages, keep it, forget the continuation request.

    `overridden` says that the loop goes on only because of that request.
    """
    step, execution = turn.step, turn.execution
    tags = {"step_id": step.id} if step.step_type == "final_response" else {"step_id": step.id, "is_trace": True}
    turn.say(step.output_messages, **tags)
    done = trusted(
        StepExecution,
        step=step,
        started_at=execution.current_step_started_at or turn.at,
        completed_at=turn.at,
        continuation=execution.continuation,
    )
    turn.tell(AgentStepCompleted, step=step)
    facts = {"usage": step.usage, "cost": step.cost, "total": execution.usage, "total_cost": execution.cost}
    turn.tell(TokenUsageReported, **facts)
    turn.change(
        step_executions=execution.step_executions.append(done),
        continuation=execution.continuation.after_step(overridden=overridden),
        current_step=None,
        current_step_started_at=None,
        open_calls=(),
    )


def conclude(turn: Turn) -> None:
    """Give the execution its final status, by the first row that holds (SPEC section 2).

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


def _tell_end(turn: Turn, status: ExecutionStatus) -> None:
    if not turn.rules.observed:
        return
    state = turn.state
    signal, error = state.stop_signal, turn.execution.error
    if error is not None:
        turn.tell(AgentExecutionFailed, error=error)
    elif status is ExecutionStatus.STOPPED and signal is not None:
        turn.tell(AgentExecutionStopped, reason=signal.reason, message=signal.message)
    else:
        turn.tell(AgentExecutionCompleted, answer=state.final_response)
