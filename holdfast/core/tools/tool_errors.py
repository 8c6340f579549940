"""The errors of tool calls that ended without the tool's own answer: not begun, lost, out of time."""

from __future__ import annotations

from holdfast.core.conversation.attempt_tally import LOST_SECONDS_MAX, WORKER_LOST
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.tools.tool_traits import ToolTraits


def never_begun(traits: ToolTraits) -> ErrorRecord:
    """Return the error of a call that no worker took in time."""
    deadline = f"within {traits.queue_seconds_max:g} s" if traits.queue_seconds_max else "in time"
    text = f"no worker took the call from the task queue {traits.task_queue!r} {deadline}; it was not begun"
    return ErrorRecord(type="ToolUnavailable", message=text, source=traits.name)


def left_unbegun(traits: ToolTraits) -> ErrorRecord:
    """Return the error of a call with one attempt whose worker shut down before it began."""
    return ErrorRecord(type="ToolUnavailable", message="the worker shut down; it was not begun", source=traits.name)


def ended_without_answer(traits: ToolTraits, why: str) -> ErrorRecord:
    """Return the error of a call whose every attempt lost its worker or took too long."""
    if traits.at_most_once:
        text = f"the call was begun and its outcome is unknown ({why}); it is not repeated, check before you try again"
        return ErrorRecord(type="OutcomeUnknown", message=text, source=traits.name)
    times = "its one attempt" if traits.attempts_max == 1 else f"its {traits.attempts_max} attempts"
    return ErrorRecord(type="ToolTimeout", message=f"the call did not end within {times} ({why})", source=traits.name)


def killed_workers(traits: ToolTraits, deaths: int) -> ErrorRecord:
    """Return the error of a call that kills its worker each time it begins."""
    died = f"the worker died {deaths} times while running this call"
    text = f"{died}, so it will not be retried; try a different approach"
    return ErrorRecord(type=WORKER_LOST, message=text, source=traits.name)


def lost_too_long(traits: ToolTraits, losses: int) -> ErrorRecord:
    """Return the error of a call whose workers were lost again and again."""
    minutes = LOST_SECONDS_MAX / 60
    text = f"its workers were lost {losses} times in more than {minutes:g} minutes; whether it has run is unknown"
    return ErrorRecord(type=WORKER_LOST, message=text, source=traits.name)
