"""Looking into what a run has written, and leading a fresh worker through it."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory

from holdfast.client import Holdfast
from tests.replay.replaying import replayer


async def history_of(client: Holdfast, execution_id: str) -> WorkflowHistory:
    return await client.temporal.get_workflow_handle(execution_id).fetch_history()


async def replayed(client: Holdfast, execution_id: str) -> None:
    """Replay the run's history; raises when the workflow's code would have done anything else."""
    history = await history_of(client, execution_id)
    await replayer(client.temporal.data_converter).replay_workflow(history)


def taken(events: Sequence[HistoryEvent]) -> list[HistoryEvent]:
    """Return the events without the workflow tasks that a busy machine lost: each was made once more."""
    ends = [event.workflow_task_timed_out_event_attributes for event in events]
    lost = {id_ for end in ends for id_ in (end.scheduled_event_id, end.started_event_id)}
    return [
        event
        for event in events
        if event.event_id not in lost and not event.HasField("workflow_task_timed_out_event_attributes")
    ]


def written(events: Sequence[HistoryEvent]) -> bytes:
    return b"".join(event.SerializeToString() for event in events)


def markers(events: Sequence[HistoryEvent]) -> list[HistoryEvent]:
    """The ends of local activities: each is one event."""
    return [event for event in events if event.HasField("marker_recorded_event_attributes")]
