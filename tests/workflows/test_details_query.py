"""Current details are made when they are asked for, and by a workflow that has some."""

from __future__ import annotations

import pytest
from temporalio import workflow
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowQueryFailedError
from temporalio.worker import Worker

from holdfast.client import Holdfast, Settings
from workflows.details_query import DetailsQuery
from workflows.workflow_runner import AgentWorkflowRunner

pytestmark = pytest.mark.temporal


@workflow.defn
class Counted:
    """Counts how often its details were made; they cannot be made once it has been told so."""

    def __init__(self) -> None:
        self._made = 0
        self._fails = self._over = False

    @workflow.run
    async def run(self) -> int:
        await workflow.wait_condition(lambda: self._over)
        return self._made

    @workflow.signal
    def fail(self) -> None:
        self._fails = True

    @workflow.signal
    def end(self) -> None:
        self._over = True

    @workflow.query
    def made(self) -> int:
        return self._made

    def current_details(self) -> str:
        if self._fails:
            raise RuntimeError("no details")
        self._made += 1
        return f"made {self._made} times"


@workflow.defn
class Plain:
    """A workflow that sets its details itself."""

    @workflow.run
    async def run(self) -> None:
        workflow.set_current_details("its own")


async def details(client: TemporalClient, id_: str) -> str:
    answer: WorkflowMetadata = await client.get_workflow_handle(id_).query(
        "__temporal_workflow_metadata", result_type=WorkflowMetadata
    )
    return answer.current_details


async def test_details_are_made_when_asked_for_and_a_failure_to_do_so_leaves_the_run_alone(settings: Settings) -> None:
    client, queue = (await Holdfast.connect(settings)).temporal, settings.task_queue
    async with Worker(
        client,
        task_queue=queue,
        workflows=[Counted, Plain],
        workflow_runner=AgentWorkflowRunner(),
        interceptors=[DetailsQuery()],
    ):
        counted = await client.start_workflow(Counted.run, id=f"counted-{queue}", task_queue=queue)
        assert await counted.query(Counted.made) == 0
        assert await details(client, counted.id) == "made 1 times"
        assert await counted.query(Counted.made) == 1, "another query makes none"
        await counted.signal(Counted.fail)
        with pytest.raises(WorkflowQueryFailedError, match="no details"):
            await details(client, counted.id)
        await counted.signal(Counted.end)
        assert await counted.result() == 1
        await client.execute_workflow(Plain.run, id=f"plain-{queue}", task_queue=queue)
        assert await details(client, f"plain-{queue}") == "its own"
