"""How an execution that has ended is kept outside the history: its snapshot and its record, by one activity."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from holdfast.core.contracts import RECORD_ACTIVITY, ExecutionInput, Recorded, RecordRequest
    from holdfast.core.limits import TASK_CHARS_MAX
    from holdfast.core.texts import clamped
    from workflows.calls import HEARTBEAT_TIMEOUT, call_error
    from workflows.cancels import in_any_case

RECORD_TIMEOUT: Final = timedelta(seconds=60)
"""One attempt, and all of them for an execution that stands alone: then it ends without a record, and says so."""

SESSION_TIMEOUT: Final = timedelta(days=7)
"""All attempts for an execution of a session, whose conversation goes on from what is kept."""

RETRY: Final = RetryPolicy(initial_interval=timedelta(seconds=0.2), maximum_interval=timedelta(seconds=10))


@dataclass(frozen=True, slots=True)
class Unkept:
    """Why there is no record."""

    why: str


async def record(start: ExecutionInput, caption: str) -> Recorded | Unkept:
    """Have the execution kept, within the time there is.

    A cancel of the run does not reach it: what has ended is kept in any case.
    """
    return await in_any_case(_recorded(start, caption))


async def _recorded(start: ExecutionInput, caption: str) -> Recorded | Unkept:
    asked = start.session.messages[-1].text if start.session and start.session.messages else start.question
    try:
        recorded: Recorded = await workflow.execute_activity(
            RECORD_ACTIVITY,
            RecordRequest(agent=start.definition.name, task=clamped(asked, TASK_CHARS_MAX)),
            result_type=Recorded,
            activity_id="record",
            start_to_close_timeout=RECORD_TIMEOUT,
            schedule_to_close_timeout=RECORD_TIMEOUT if start.session is None else SESSION_TIMEOUT,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=RETRY,
            summary=caption,
        )
    except ActivityError as error:
        return Unkept(call_error(error, "record").message)
    return recorded
