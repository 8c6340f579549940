"""What who waits or watches is told of runs and sessions that the server deletes, or has deleted."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.connection.history_poll import History
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.tools.tools import tool
from holdfast.core.wire.contracts import EVENTS_QUERY, EventsPage, EventsRequest
from holdfast.core.wire.execution_events import Observed
from holdfast.testing.script import call, say
from tests.resets import deleted
from tests.serving import Serve

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition(name="adder", tools="all")
SECONDS_MAX = 90


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def runs_of(client: Holdfast, execution_id: str) -> list[str]:
    """Return the ids of an execution's Temporal runs, the first one first."""
    described = await client.temporal.get_workflow_handle(execution_id).describe()
    run_id: str | None = described.raw_description.workflow_execution_info.first_run_id
    found: list[str] = []
    while run_id:
        found.append(run_id)
        history = History(client.temporal, execution_id, run_id, closed=True)
        await history.news()
        run_id = history.next_run_id
    return found


async def events_of(client: Holdfast, execution_id: str) -> list[Observed]:
    async with asyncio.timeout(SECONDS_MAX):
        return [each async for each in client.watch(execution_id) if isinstance(each, Observed)]


@pytest.mark.slow
async def test_of_a_run_whose_beginning_is_deleted_all_the_rest_is_told(serve: Serve, settings: Settings) -> None:
    async with serve([*(call("add", a=number, b=1) for number in range(3)), say("done")], [add]):
        client = await Holdfast.connect(replace(settings, continue_events=1))
        execution_id = await client.start(AGENT, "add")
        whole = await events_of(client, execution_id)
        run_ids = await runs_of(client, execution_id)
        first = client.temporal.get_workflow_handle(execution_id, run_id=run_ids[0])
        page: EventsPage = await first.query(EVENTS_QUERY, EventsRequest(start=0), result_type=EventsPage)
        await deleted(client, execution_id, run_ids[0])
        rest = await events_of(await Holdfast.connect(settings), execution_id)
    assert len(run_ids) > 2
    assert 0 < page.total < len(whole)
    assert rest == whole[page.total :]
