"""What a run writes into Temporal's history: as much per step at the end as at the beginning, and no secret."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType

from activities.transcript_cache import TranscriptCache
from holdfast import AgentDefinition, tool
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.bounds import DELTA_BYTES_MAX, PAYLOAD_BYTES_MAX
from holdfast.testing.script import Call, Reply, call, calls, say, turn_number
from tests.serving import Serve, served
from tests.workflows.histories import taken

pytestmark = pytest.mark.temporal

UPSERT = EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES
AGENT = AgentDefinition(name="reader", tools="all", system_prompt="You read.")
BYTES_PER_STEP_MAX = 6_500


@tool
def read(size: int, seed: int = 0) -> str:
    """Return so many characters that do not compress."""
    return Random(seed).randbytes(size // 2).hex()  # noqa: S311  # not a secret


async def sizes(client: Holdfast, execution_id: str) -> tuple[int, int]:
    """The number of events and their bytes, but for those that list how far it is: they have a rate of their own.

    Workers are counted as if each had the same short identity: theirs is pid@host, ten times in a step.
    """
    history = await client.temporal.get_workflow_handle(execution_id).fetch_history()
    events = [each for each in taken(history.events) if each.event_type != UPSERT]
    written = b"".join(each.SerializeToString() for each in events)
    return len(events), len(written.replace(client.temporal.identity.encode(), b"1234@vm"))


@pytest.mark.slow
async def test_a_step_costs_twelve_events_and_the_same_bytes_early_and_late(serve: Serve) -> None:
    def as_often_as_asked(request: dict[str, Any]) -> Reply:
        steps = int(request["messages"][1]["content"])
        number = turn_number(request)
        return call("read", size=2_048, seed=number) if number < steps else say("done")

    async with serve(as_often_as_asked, [read]) as served:
        measured: dict[int, tuple[int, int]] = {}
        for steps in (10, 40):
            execution_id = await served.client.start(AGENT, str(steps))
            await served.client.result(execution_id)
            measured[steps] = await sizes(served.client, execution_id)
    events = (measured[40][0] - measured[10][0]) / 30
    bytes_each = (measured[40][1] - measured[10][1]) / 30
    assert events == 12
    assert bytes_each < BYTES_PER_STEP_MAX


@pytest.mark.slow
async def test_results_too_large_to_travel_are_fetched_by_query(serve: Serve) -> None:
    big = calls(*(Call("read", {"size": 49_000, "seed": n}) for n in range(8)))
    async with serve([big, big, say("done")], [read]) as served:
        execution_id = await served.client.start(AGENT, "read much")
        state = await served.client.result(execution_id)
        history = await served.client.temporal.get_workflow_handle(execution_id).fetch_history()
    assert state.status is ExecutionStatus.COMPLETED
    assert sum(len(message.content) for message in state.messages) > 5 * DELTA_BYTES_MAX
    inputs = [event.activity_task_scheduled_event_attributes.input.ByteSize() for event in history.events]
    assert max(inputs) < PAYLOAD_BYTES_MAX
    seen = served.endpoint.requests[-1].body["messages"]
    assert [message["content"] for message in seen if message["role"] == "tool"] == [
        message.content for message in state.messages if message.role == "tool"
    ]


@pytest.mark.slow
async def test_a_worker_that_never_saw_the_conversation_reads_it_from_the_workflow(
    settings: Settings, tmp_path: Path
) -> None:
    script = [*(call("read", size=500, seed=n) for n in range(12)), say("done")]
    forgetful = TranscriptCache(bytes_max=0)
    async with served(settings, tmp_path / "ledger.jsonl", script, Toolset(tools=(read,)), forgetful) as without_memory:
        state = await without_memory.client.run(AGENT, "read on")
    assert state.output == "done"
    said = [len(request.body["messages"]) for request in without_memory.endpoint.requests]
    assert said == [2 + 2 * step for step in range(13)]


async def test_one_timer_serves_the_whole_run_and_status_is_upserted_once(serve: Serve) -> None:
    agent = AgentDefinition.model_validate({"name": "timed", "tools": "all", "budget": {"max_seconds": 600}})
    async with serve([*(call("read", size=10) for _ in range(3)), say("done")], [read]) as served:
        execution_id = await served.client.start(agent, "read")
        await served.client.result(execution_id)
        history = await served.client.temporal.get_workflow_handle(execution_id).fetch_history()
    kinds = Counter(event.event_type for event in history.events)
    assert kinds[EventType.EVENT_TYPE_TIMER_STARTED] == 1
    assert kinds[UPSERT] == 1


async def test_no_secret_reaches_the_history(serve: Serve) -> None:
    async with serve([call("read", size=10), say("done")], [read]) as served:
        execution_id = await served.client.start(AGENT, "read")
        await served.client.result(execution_id)
        history = await served.client.temporal.get_workflow_handle(execution_id).fetch_history()
    written = b"".join(event.SerializeToString() for event in history.events)
    assert b"test-key" not in written
    assert served.endpoint.base_url.encode() not in written


@pytest.mark.slow
async def test_many_runs_at_once_keep_to_themselves(serve: Serve) -> None:
    async with serve([call("read", size=100), call("read", size=100), say("done")], [read]) as served:
        asked = [f"question {n}" for n in range(30)]
        states = await asyncio.gather(*(served.client.run(AGENT, question) for question in asked))
    assert [state.messages[0].content for state in states] == asked
    assert all(state.output == "done" and state.state.step_count == 3 for state in states)
