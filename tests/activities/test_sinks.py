"""Which time a sink goes by where its worker's clock is not the server's."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceResponse,
    ListWorkflowExecutionsRequest,
    ListWorkflowExecutionsResponse,
)
from temporalio.testing import ActivityEnvironment

from activities.sinks import EventSinks
from holdfast.core.wire.sink_contracts import SinkStart
from holdfast.sinks import JsonLines
from holdfast.storage.object_store import Objects
from holdfast.storage.records import Records

START = SinkStart(consumer="test", task_queue="queue")
UNTIL = re.compile(r"CloseTime <= '([^']+)'")


class Server:
    """Lists nothing, and tells until when it was asked for what has ended."""

    namespace = "default"

    def __init__(self) -> None:
        self.asked_until = asyncio.get_running_loop().create_future()
        self.workflow_service = SimpleNamespace(describe_namespace=self._describe, list_workflow_executions=self._list)

    async def _describe(self, *_: object, **__: object) -> DescribeNamespaceResponse:
        return DescribeNamespaceResponse()

    async def _list(self, asked: ListWorkflowExecutionsRequest, **_: object) -> ListWorkflowExecutionsResponse:
        if (until := UNTIL.search(asked.query)) is not None and not self.asked_until.done():
            self.asked_until.set_result(datetime.fromisoformat(until[1]))
        return ListWorkflowExecutionsResponse()


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(hours=-1)])
async def test_a_sink_looks_for_what_has_ended_by_the_servers_clock(ahead: timedelta, tmp_path: Path) -> None:
    """By its own, one behind would be told late of what has ended, and again after it; one ahead would miss some."""
    server = Server()
    environment = ActivityEnvironment(client=cast("Any", server))
    now = datetime.now(UTC) + ahead
    environment.info = replace(environment.info, started_time=now)
    sinks = EventSinks([JsonLines(tmp_path / "events.jsonl", name="test")], Records(Objects(f"memory://{uuid4()}")))
    delivering = asyncio.create_task(environment.run(sinks.deliver, START))
    async with asyncio.timeout(60):
        until = await server.asked_until
    environment.cancel()
    await asyncio.gather(delivering, return_exceptions=True)
    assert abs(until - now) < timedelta(seconds=60)
