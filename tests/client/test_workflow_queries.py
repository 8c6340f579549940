"""Workers that answer questions in words that are not ours: each is told of, none ends who asks."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from temporalio import workflow
from temporalio.worker import Worker

from holdfast.client import ExecutionSummary, Holdfast, Settings
from holdfast.core.base.errors import ServerUnavailable
from holdfast.core.wire.contracts import AGENT_EXECUTION, STATE_QUERY
from holdfast.view.server_overview import Listed, row_of

pytestmark = pytest.mark.temporal


@workflow.defn(name=AGENT_EXECUTION, sandboxed=False)
class OfAnotherVersion:
    """A run whose worker knows other pages than we do."""

    @workflow.run
    async def run(self) -> None:
        await asyncio.Event().wait()

    @workflow.query(name=STATE_QUERY)
    def state(self, _: dict[str, Any]) -> dict[str, str]:
        return {"page": "of another version"}


@workflow.defn(name=AGENT_EXECUTION, sandboxed=False)
class EndedInAnotherVersion:
    """A run whose result has other fields than we know."""

    @workflow.run
    async def run(self) -> dict[str, str]:
        return {"result": "of another version"}


async def test_a_result_that_cannot_be_read_is_told_alike_by_whoever_reads_it(settings: Settings) -> None:
    client, id_, queue = await Holdfast.connect(settings), str(uuid4()), str(uuid4())
    async with Worker(client.temporal, task_queue=queue, workflows=[EndedInAnotherVersion]):
        handle = await client.temporal.start_workflow(AGENT_EXECUTION, id=id_, task_queue=queue)
        await handle.result()
    for read in (client.state, client.result):
        with pytest.raises(ServerUnavailable, match=f"answer for run {id_} cannot be read.*another version"):
            await read(id_)


async def test_an_answer_that_cannot_be_read_is_told_with_its_run(settings: Settings) -> None:
    client, id_, queue = await Holdfast.connect(settings), str(uuid4()), str(uuid4())
    known = ExecutionSummary(id_, "old", "running", None, None, None, None, datetime.now(UTC), None)
    listed = Listed(id_, "", "run", "running", known, waiting=False, tenant=None, parent=None, task_queue=queue)
    async with Worker(client.temporal, task_queue=queue, workflows=[OfAnotherVersion]):
        handle = await client.temporal.start_workflow(AGENT_EXECUTION, id=id_, task_queue=queue)
        try:
            row = await row_of(client, listed)
            with pytest.raises(ServerUnavailable, match=f"answer for run {id_} cannot be read.*another version"):
                await client.state(id_)
        finally:
            await handle.terminate()
    assert f"answer for run {id_} cannot be read" in row.unread
    assert row.run is None
