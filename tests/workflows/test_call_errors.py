"""What is told of calls that Temporal gave up: the cause, where an attempt had one."""

from __future__ import annotations

from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    RetryState,
    TimeoutError,  # noqa: A004  # its name
    TimeoutType,
)

from workflows.execution.call_errors import call_error


def given_up(cause: BaseException | None) -> ActivityError:
    """The error of an activity that was tried until its time was over."""
    late = TimeoutError(
        "activity ScheduleToClose timeout", type=TimeoutType.SCHEDULE_TO_CLOSE, last_heartbeat_details=[]
    )
    late.__cause__ = cause
    error = ActivityError(
        "Activity task timed out",
        scheduled_event_id=5,
        started_event_id=6,
        identity="",
        activity_type="resolve_mcp",
        activity_id="mcp",
        retry_state=RetryState.TIMEOUT,
    )
    error.__cause__ = late
    return error


def test_a_call_that_was_tried_until_its_time_was_over_tells_what_its_last_attempt_said() -> None:
    why = "the MCP server 'files' (npx) cannot be used: it has not answered within 30 s"
    error = call_error(given_up(ApplicationError(why, type="McpUnavailable")), "worker")
    assert (error.type, error.message, error.source) == ("McpUnavailable", why, "worker")


def test_a_call_whose_attempts_said_nothing_tells_of_the_time() -> None:
    assert call_error(given_up(None), "worker").message == "activity ScheduleToClose timeout"
