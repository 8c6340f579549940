"""Final answers that a hook refuses, so that the model answers again (docs/spec.md, section 3)."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from holdfast.core.base.bounds import ERROR_CHARS_MAX
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.transition import Transition
from holdfast.core.tools.tool_traits import RETRIES_MAX

ANSWER_REFUSED: Final = "AnswerRefused"
"""The type of the error of a final answer that a hook refused."""


def note_refusal(transition: Transition, why: str, hook: str) -> None:
    """Record on the step that `hook` refuses its answer; an answer that asks for tools stands, with a warning."""
    step = transition.step
    if step.requested_tool_calls:
        transition.warn(f"the hook {hook!r} refused an answer that asks for tools; only a final answer can be refused")
        return
    error = ErrorRecord(type=ANSWER_REFUSED, message=clamped(why, ERROR_CHARS_MAX), source=hook)
    transition.change_step(errors=(*step.errors, error))


def ask_again(transition: Transition) -> bool:
    """Tell the model why its answer was refused, or stop after too many refusals in a row; false for none."""
    refusals = [error for error in transition.step.errors if error.type == ANSWER_REFUSED]
    if not refusals:
        return False
    why, before = "\n".join(error.message for error in refusals), _refused_in_a_row(transition)
    if before >= RETRIES_MAX:
        text = f"the hook {refusals[0].source!r} refused {before + 1} answers in a row: {why}"
        facts: dict[str, JsonValue] = {"limit": "retries_max", "used": before, "allowed": RETRIES_MAX}
        transition.signal_once(StopReason.RETRY_LIMIT, text, refusals[0].source, **facts)
        return True
    message = Message(
        role="user", content=f"Your answer was refused: {why}\nAnswer again.", metadata={"is_trace": True}
    )
    waiting = (*transition.execution.waiting_messages, message)
    transition.change(waiting_messages=waiting, answer_due=True)
    return True


def _refused_in_a_row(transition: Transition) -> int:
    """Return how many of the latest answers were refused; steps that asked for tools do not count."""
    count = 0
    for done in reversed(transition.execution.step_executions):
        if done.step.requested_tool_calls:
            continue
        if not any(error.type == ANSWER_REFUSED for error in done.step.errors):
            break
        count += 1
    return count
