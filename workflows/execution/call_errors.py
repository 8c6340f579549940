"""Turns the failures of activities into errors of the run. Decides nothing else."""

from __future__ import annotations

from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    FailureError,
    TimeoutError,  # noqa: A004  # its name
    TimeoutType,
)

from holdfast.core.base.bounds import ERROR_CHARS_MAX
from holdfast.core.base.safe_text import clamped
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.conversation.attempt_tally import WORKER_LOST
from holdfast.core.conversation.error_records import error_record
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.tools.tool_errors import ended_without_answer, never_begun
from holdfast.core.tools.tool_traits import ToolTraits
from holdfast.core.wire.contracts import WORKER_SHUTDOWN, CallProgress


def model_error(error: ActivityError) -> ErrorRecord:
    """Return why the model call failed for good."""
    if isinstance(error.cause, TimeoutError):
        text = f"the model call did not end in its time ({_timeout(error.cause)})"
        return ErrorRecord(type="ModelTimeout", message=text, source="model")
    return call_error(error, "model")


def failed_usage(error: ActivityError) -> tuple[Usage, bool]:
    """Return the usage of a failed model call's attempts, and whether the last one was lost without a report.

    The usage is in its failure, or in its last heartbeat.
    """
    cause: BaseException | None = error.cause
    if isinstance(cause, TimeoutError) and cause.last_heartbeat_details:
        progress = CallProgress.model_validate(cause.last_heartbeat_details[0])
        return progress.failed_usage + progress.if_lost, False
    if isinstance(cause, TimeoutError):
        if not isinstance(cause.cause, ApplicationError):
            return NOTHING_USED, cause.type in (TimeoutType.HEARTBEAT, TimeoutType.START_TO_CLOSE)
        cause = cause.cause  # between two attempts: its cause is the failure of the previous one
    if isinstance(cause, ApplicationError) and cause.details:
        return Usage.model_validate(cause.details[0]), False
    return NOTHING_USED, isinstance(cause, ApplicationError) and cause.type in (WORKER_SHUTDOWN, WORKER_LOST)


def tool_error(error: ActivityError, traits: ToolTraits) -> ErrorRecord:
    """Return the error of a failed tool call, for the model."""
    match error.cause:
        case ApplicationError() as cause if not _is_lost(cause, traits):
            return call_error(error, traits.name)
        case ApplicationError(type=kind) if kind == WORKER_LOST:
            return ended_without_answer(traits, "its worker died")
        case TimeoutError(type=TimeoutType.SCHEDULE_TO_START) as cause:
            if cause.cause is None and not cause.last_heartbeat_details:
                return never_begun(traits)
            return ended_without_answer(traits, "its worker was lost and no other took it up")
        case TimeoutError() as cause:
            return ended_without_answer(traits, _timeout(cause))
        case _:
            return ended_without_answer(traits, "it was interrupted")


def _is_lost(failure: ApplicationError, traits: ToolTraits) -> bool:
    """Return whether the worker ended during the call; a repeatable call fails so only when it is refused."""
    return failure.type == WORKER_SHUTDOWN or (traits.at_most_once and failure.type == WORKER_LOST)


def call_error(error: FailureError, source: str) -> ErrorRecord:
    """Return the error of a failed call, with the type that its activity gave it."""
    cause = error.cause if isinstance(error, ActivityError) else error
    if isinstance(cause, TimeoutError) and isinstance(cause.cause, ApplicationError):
        cause = cause.cause  # why the last attempt failed, after which the time was over
    if isinstance(cause, ApplicationError):
        text = clamped(cause.message, ERROR_CHARS_MAX)
        return ErrorRecord(type=cause.type or "ApplicationError", message=text, source=source)
    return error_record(cause or error, source)


def _timeout(error: TimeoutError) -> str:
    return "its worker fell silent" if error.type is TimeoutType.HEARTBEAT else "it took too long"
