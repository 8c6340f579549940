"""Which workflow tasks are recorded: those that the test, as a worker, takes and completes, or takes and leaves."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    PollWorkflowTaskQueueRequest,
    PollWorkflowTaskQueueResponse,
    RespondWorkflowTaskCompletedRequest,
)
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client import Holdfast, Settings
from holdfast.connection.recorded_tasks import PAGE_EVENTS, is_recorded

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(120)]


async def test_a_task_is_recorded_once_it_is_completed_and_never_if_it_is_lost(settings: Settings) -> None:
    temporal, queue, id_ = (await Holdfast.connect(settings)).temporal, settings.task_queue, str(uuid4())
    lost_after = timedelta(seconds=1)
    handle = await temporal.start_workflow("Nothing", id=id_, task_queue=queue, task_timeout=lost_after)
    run_id = str(handle.result_run_id)

    async def taken() -> PollWorkflowTaskQueueResponse:
        request = PollWorkflowTaskQueueRequest(
            namespace=temporal.namespace, task_queue=TaskQueue(name=queue), identity="test"
        )
        return await temporal.workflow_service.poll_workflow_task_queue(request, timeout=timedelta(seconds=60))

    async def completed(task: PollWorkflowTaskQueueResponse) -> bool:
        request = RespondWorkflowTaskCompletedRequest(namespace=temporal.namespace, task_token=task.task_token)
        try:
            await temporal.workflow_service.respond_workflow_task_completed(request)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return False
        return True

    lost = await taken()
    assert not await is_recorded(temporal, id_, run_id, lost.started_event_id), "under way"
    again = await taken()
    assert not await is_recorded(temporal, id_, run_id, lost.started_event_id), "timed out"
    while not await completed(again):  # a busy machine takes longer than a task may take
        again = await taken()
    for _ in range(PAGE_EVENTS + 1):
        await handle.signal("more")
    assert await is_recorded(temporal, id_, run_id, again.started_event_id), "on an earlier page"
    assert not await is_recorded(temporal, id_, run_id, lost.started_event_id)
    assert not await is_recorded(temporal, id_, str(uuid4()), again.started_event_id), "no such run"
    await handle.terminate()
