"""The workflow `EventSink`: Temporal elects the one worker that delivers events to a sink. It sees no event."""

from __future__ import annotations

from datetime import timedelta
from typing import NoReturn

from temporalio import workflow
from temporalio.common import RetryPolicy

from holdfast.core.wire.sink_contracts import DELIVER_ACTIVITY, EVENT_SINK, HEARTBEAT_SECONDS, TURN_SECONDS, SinkStart
from workflows.continue_as_new import check_start

DELIVER_TIMEOUT = timedelta(seconds=TURN_SECONDS + 3600)
"""The activity ends by itself after its turn; this is for one that does not."""

AGAIN = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=5))
"""Without end: a sink that cannot be served now is served later, from its last position."""


@workflow.defn(name=EVENT_SINK)
class EventSink:
    """One per consumer and task queue; its runs last a day each."""

    @workflow.run
    async def run(self, start: SinkStart) -> NoReturn:
        """Run the delivery activity on one worker after another."""
        check_start(start)
        await workflow.execute_activity(
            DELIVER_ACTIVITY,
            start,
            start_to_close_timeout=DELIVER_TIMEOUT,
            heartbeat_timeout=timedelta(seconds=HEARTBEAT_SECONDS),
            retry_policy=AGAIN,
            summary=f"events of {start.task_queue} to {start.consumer}",
        )
        workflow.continue_as_new(start)
