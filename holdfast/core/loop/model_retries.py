"""How often in a row a tool may have the model try again (`ModelRetry`; docs/spec.md, section 3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pydantic import JsonValue

from holdfast.core.base.model_retry import MODEL_RETRY
from holdfast.core.conversation.steps import AgentStep, ErrorRecord
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.loop.transition import Transition

TOO_MANY_RETRIES: Final = "TooManyRetries"
"""The type of the error in place of one ModelRetry too many; it does not end the row."""


def bounded_retry(transition: Transition, tool: str, error: ErrorRecord) -> ErrorRecord:
    """Return the error of a call of `tool` that ended with a ModelRetry: itself, or that there were too many.

    A model that goes on in the same way for as many steps again is stopped. What counts is the archived steps: which
    call of a step ends first makes no difference.
    """
    traits = transition.rules.tools.get(tool)
    if error.type != MODEL_RETRY or traits is None:
        return error
    before = _in_a_row(tool, (done.step for done in reversed(transition.execution.step_executions)))
    if before < traits.retries_max:
        return error
    text = f"the tool asked for another try in {before + 1} steps in a row, at most {traits.retries_max} are answered"
    if before >= max(1, 2 * traits.retries_max):
        facts: dict[str, JsonValue] = {"limit": "retries_max", "used": before + 1, "allowed": traits.retries_max}
        transition.signal_once(StopReason.RETRY_LIMIT, f"{text}: {error.message}", tool, **facts)
    return ErrorRecord(type=TOO_MANY_RETRIES, message=f"{text}; do something else: {error.message}", source=tool)


def _in_a_row(tool: str, latest_first: Iterable[AgentStep]) -> int:
    """Return in how many of the latest steps in which `tool` ran each of its calls asked for another try."""
    count = 0
    for step in latest_first:
        ran = [each.error for each in step.tool_executions if each.name == tool and each.ran]
        if not all(error is not None and error.type in (MODEL_RETRY, TOO_MANY_RETRIES) for error in ran):
            break
        count += bool(ran)
    return count
