"""How a step and an execution end: answer judged, step archived, final status (docs/spec.md, sections 2 and 3)."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.hooks import Trigger
from holdfast.core.base.frozen import trusted
from holdfast.core.base.model_retry import MODEL_RETRY
from holdfast.core.conversation.judgements import ANSWER_REFUSED, ANSWER_UNJUDGED
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import (
    ANSWER_HELD_BACK,
    AgentStepType,
    ErrorRecord,
    RevisedAnswer,
    StepExecution,
)
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop import headroom
from holdfast.core.loop.commands import Finish
from holdfast.core.loop.own_tools import critique, steps_back
from holdfast.core.loop.pending_messages import deliver_pending
from holdfast.core.loop.tool_replies import files_of, pictures_of
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

NOT_FATAL: Final = frozenset({MODEL_RETRY, ANSWER_REFUSED, ANSWER_UNJUDGED, ANSWER_HELD_BACK})
"""The types of errors that end no run by themselves, even where errors are fatal."""


def judge_answer(transition: Transition) -> None:
    """Handle an answer in the wrong format, an answer that ended early, and fatal errors.

    The text of a hook is taken as it is: that of the model, which was checked, is not the answer any more.
    """
    response = transition.step.inference_response
    if response is not None and not response.tool_calls:
        if response.finish_reason in transition.rules.definition.finish_reasons:
            text = f"the model's answer ended with {response.finish_reason!r}"
            transition.signal_once(StopReason.FINISH_REASON, text, "model", finish_reason=response.finish_reason)
        if response.format_problem is not None and transition.step.revised is None:
            _reask(transition, response.format_problem)
    judge_errors(transition)


def judge_errors(transition: Transition) -> None:
    """Fail the execution for an error of the step, where the definition says that errors are fatal.

    That a tool or a critique has the model try again is no such error.
    """
    errors = [error for error in transition.step.all_errors if error.type not in NOT_FATAL]
    if errors and transition.rules.definition.errors == "fatal":
        transition.fail(errors[0])


def hold_back(transition: Transition) -> None:
    """Keep an answer from counting whose hooks are under way as the run ends: they could have given it another text.

    A final answer becomes the step's partial one. An answer with tool calls keeps its calls and their records, and
    loses its text; once its `after_inference` hooks have passed, it keeps the text, too.
    """
    step, trigger = transition.execution.current_step, transition.execution.hooks_under_way
    response = step.response if step else None
    if step is None or response is None or not response.text.strip():
        return
    if trigger is not Trigger.AFTER_INFERENCE and (trigger is not Trigger.AFTER_STEP or response.tool_calls):
        return
    if response.tool_calls:
        transition.change_step(revised=RevisedAnswer(text="", hook=trigger))
    else:
        transition.change_step(inference_response=None, partial_response=response.without_items)
        _mark_invalid(transition, response.format_problem)
    text = f"the run ended before its {trigger} hooks had passed the answer"
    error = ErrorRecord(type=ANSWER_HELD_BACK, message=text, source=trigger)
    transition.change_step(errors=(*transition.step.errors, error))


def judge_cut_off(transition: Transition) -> None:
    """Keep an unusable answer from counting where the run ends at once, before `judge_answer`; ask nothing again."""
    step, response = transition.step, transition.step.inference_response
    judged = any(error.type == INVALID_ANSWER for error in step.errors)
    if response is not None and not response.tool_calls and step.revised is None and not judged:
        _mark_invalid(transition, response.format_problem)
    judge_errors(transition)


def _mark_invalid(transition: Transition, problem: str | None) -> None:
    if problem is not None:
        error = ErrorRecord(type=INVALID_ANSWER, message=problem, source="model")
        transition.change_step(errors=(*transition.step.errors, error))


def _reask(transition: Transition, problem: str) -> None:
    """Tell the model what is wrong with its answer, or stop after too many re-asks."""
    _mark_invalid(transition, problem)
    reasks, allowed = transition.execution.reasks, transition.rules.definition.reasks_max
    if reasks >= allowed:
        text = f"the answer breaks the response format after {reasks} re-asks: {problem}"
        facts: dict[str, JsonValue] = {"limit": "reasks_max", "used": reasks, "allowed": allowed}
        transition.signal_once(StopReason.RETRY_LIMIT, text, "response_format", **facts)
        return
    text = f"Your answer cannot be used: {problem}\nAnswer again, in the required form and with nothing else."
    message = Message(role="user", content=text, metadata={"is_trace": True})
    transition.change(
        reasks=reasks + 1, waiting_messages=(*transition.execution.waiting_messages, message), answer_due=True
    )


def more_to_do(transition: Transition) -> bool:
    """Return whether the loop goes on by itself: the model requested tools, or a waiting message must be answered.

    Those are messages from outside and our own re-asks; a hook's messages do not keep the loop going.
    """
    return bool(transition.step.requested_tool_calls) or transition.execution.answer_due


def archive(transition: Transition, *, overridden: bool = False) -> None:
    """Archive the step under way: add its messages, keep the step, clear the continuation request.

    `overridden` is true when the loop goes on only because of that request.
    """
    critique.withdraw(transition)
    if transition.rules.definition.context.images and (pictures := pictures_of(transition.step.tool_executions)):
        transition.change_step(pictures=pictures)
    if transition.rules.definition.context.files and (files := files_of(transition.step.tool_executions)):
        transition.change_step(files=files)
    step, execution = transition.step, transition.execution
    final = step.step_type is AgentStepType.FINAL_RESPONSE
    tags = {"step_id": step.id} if final else {"step_id": step.id, "is_trace": True}
    transition.add_messages(step.output_messages, **tags)
    done = trusted(
        StepExecution,
        step=step,
        started_at=execution.current_step_started_at or transition.at,
        completed_at=transition.at,
        continuation=execution.continuation,
    )
    transition.emit(
        AgentStepCompleted,
        step=step.without_items,
        started_at=done.started_at,
        completed_at=done.completed_at,
        duration_seconds=done.duration.total_seconds(),
        usage=step.usage,
    )
    transition.emit(
        TokenUsageReported,
        usage=step.usage,
        cost=step.cost,
        total=execution.usage,
        total_cost=execution.cost,
        unpriced=step.unpriced,
        total_unpriced=execution.unpriced,
    )
    transition.change(
        step_executions=execution.step_executions.append(done),
        continuation=execution.continuation.after_step(overridden=overridden),
        current_step=None,
        current_step_started_at=None,
        open_calls=(),
    )
    if step.fallbacks or step.model_call_changes is not None:  # the next step begins with the first model
        headroom.count_for_route(transition)
    steps_back.take_place(transition)


def conclude(transition: Transition) -> None:
    """Give the execution its final status, by the first row that holds (docs/spec.md, section 2).

    Fatal errors were handled when their step ended (`judge_errors`). Messages that wait are added, unanswered.
    """
    deliver_pending(transition)
    execution = transition.execution
    highest = execution.continuation.highest
    if execution.error is not None:
        status = ExecutionStatus.FAILED
    elif highest is not None and highest.reason.forced:
        status = ExecutionStatus.STOPPED
    else:
        status = ExecutionStatus.COMPLETED
    transition.change(status=status, completed_at=transition.at)
    _emit_end(transition, status)
    transition.do(Finish())


def emit_stopped(transition: Transition) -> None:
    """Emit AgentExecutionStopped, once in each execution; the last hooks can still change the final status."""
    transition.emit(AgentExecutionStopped, **_reason(transition))


def _emit_end(transition: Transition, status: ExecutionStatus) -> None:
    if not transition.rules.observed:
        return
    if transition.execution.error is not None:
        transition.emit(AgentExecutionFailed, error=transition.execution.error)
    else:
        transition.emit(
            AgentExecutionCompleted, answer=transition.state.final_response, status=status, **_reason(transition)
        )


def _reason(transition: Transition) -> dict[str, StopReason | str]:
    highest = transition.execution.continuation.highest
    if highest is None:
        return {"reason": StopReason.COMPLETED, "message": ""}
    return {"reason": highest.reason, "message": highest.message}
