"""Stores the snapshot and the record of an ended execution outside the history, by one activity."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from temporalio import workflow
from temporalio.exceptions import ActivityError

from holdfast.core.base.bounds import TASK_CHARS_MAX
from holdfast.core.base.safe_text import clamped
from holdfast.core.wire.contracts import RECORD_ACTIVITY, ExecutionInput, Recorded, RecordRequest
from workflows.execution.activity_calls import HEARTBEAT_TIMEOUT
from workflows.execution.call_errors import call_error
from workflows.shielding import in_any_case
from workflows.timeouts import RECORD, SESSION_RECORD


@dataclass(frozen=True, slots=True)
class MissingRecord:
    """Why there is no record."""

    why: str


async def record(start: ExecutionInput, question: str, ended_at: datetime, caption: str) -> Recorded | MissingRecord:
    """Store the execution that has ended then, within the time limits. `question` is for inputs without one.

    A cancel of the run does not reach it: an ended execution is stored in any case.
    """
    return await in_any_case(_recorded(start, question, ended_at, caption))


async def _recorded(start: ExecutionInput, question: str, ended_at: datetime, caption: str) -> Recorded | MissingRecord:
    times = RECORD if start.session is None else SESSION_RECORD
    text = start.session.messages[-1].text if start.session and start.session.messages else start.question
    task = clamped(text or question, TASK_CHARS_MAX)
    try:
        recorded: Recorded = await workflow.execute_activity(
            RECORD_ACTIVITY,
            RecordRequest(agent=start.definition.name, task=task, ended_at=ended_at),
            result_type=Recorded,
            activity_id="record",
            start_to_close_timeout=times.attempt,
            schedule_to_close_timeout=times.total,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=times.retry,
            summary=caption,
        )
    except ActivityError as error:
        return MissingRecord(call_error(error, "record").message)
    return recorded
