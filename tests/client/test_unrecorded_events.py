"""A worker that is ahead of a run's history: whoever follows the history is told nothing that it does not have."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from holdfast import AgentDefinition, tool
from holdfast.client import Holdfast, Settings
from holdfast.connection.history_poll import History
from holdfast.core.agent.toolset import Toolset
from holdfast.core.conversation.verdicts import Verdict
from holdfast.core.wire.contracts import APPROVAL_SIGNAL, EVENTS_QUERY, ApprovalDecision, EventsPage, EventsRequest
from holdfast.core.wire.execution_events import Observed
from holdfast.testing import Hold
from holdfast.testing.script import call, say
from tests.serving import served
from tests.workflows.histories import history_of, replayed
from tests.workflows.waiting import waiting_calls

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300)]

AGENT = AgentDefinition.model_validate({"name": "careful", "tools": "all", "approvals": [{"tools": ["pay"]}]})
SECONDS_MAX = 90
LOOK_SECONDS = 0.05
ROUNDS_MAX = 5


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@pytest.mark.slow
async def test_events_of_a_task_that_is_not_recorded_are_held_back(settings: Settings, tmp_path: Path) -> None:
    for number in range(ROUNDS_MAX):
        ahead, recorded, live, end = await _asked_before_the_task(settings, tmp_path / f"ledger-{number}.jsonl")
        assert recorded == end[: len(recorded)], "what the history has is told as it is told in the end"
        assert live == end[: len(live)], "so is what the worker tells once the task is recorded"
        if ahead != end[: len(ahead)]:
            assert len(ahead) > len(recorded)
            return
    pytest.fail("no query has read beyond the history: this has shown nothing")


async def _asked_before_the_task(settings: Settings, ledger: Path) -> tuple[list[Observed], ...]:
    """Ask a fresh worker before it gets the task that a decision has made.

    Return what it tells without regard for the history, what with it, what once the task is recorded, and what a
    watcher is told in the end.
    """
    hold = Hold()
    script, till = [call("pay", amount=5), say("done", hold=hold)], Toolset(tools=(pay,))
    async with served(settings, ledger, script, till) as before:
        execution_id = await before.client.start(AGENT, "pay")
        (call_id,) = await waiting_calls(before.client, execution_id)
    client = await Holdfast.connect(settings)
    handle: Any = client.temporal.get_workflow_handle(execution_id)
    recorded = await _recorded(client, execution_id)
    requests = [EventsRequest(), EventsRequest(recorded=recorded)]
    asking = [asyncio.create_task(handle.query(EVENTS_QUERY, each, result_type=EventsPage)) for each in requests]
    await asyncio.sleep(1)  # until the server has them: nothing tells
    await handle.signal(APPROVAL_SIGNAL, ApprovalDecision(call_id=call_id, verdict=Verdict(decision="approve")))
    async with asyncio.timeout(SECONDS_MAX):
        while not (await handle.describe()).raw_description.HasField("pending_workflow_task"):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_SECONDS)  # nobody tells of it
    async with served(settings, ledger, script, till) as after:
        pages: list[EventsPage] = await asyncio.gather(*asking)
        await hold.until_held()
        live: EventsPage = await handle.query(EVENTS_QUERY, EventsRequest(), result_type=EventsPage)
        hold.release()
        watched: list[Observed] = []
        async for each in after.client.watch(execution_id):
            if isinstance(each, Observed):
                watched.append(each)  # noqa: PERF401  # of the wider type
        await replayed(client, execution_id)
    return [*pages[0].events], [*pages[1].events], [*live.events], watched


async def _recorded(client: Holdfast, execution_id: str) -> int:
    """Return the number of the event with which the last recorded task began; the history's follower finds the same."""
    events = (await history_of(client, execution_id)).events
    completed = [each for each in events if each.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED]
    recorded = completed[-1].workflow_task_completed_event_attributes.started_event_id
    described = await client.temporal.get_workflow_handle(execution_id).describe()
    history = History(client.temporal, execution_id, described.run_id, closed=False)
    while history.recorded < recorded:
        await history.news()
    assert history.recorded == recorded
    return recorded
