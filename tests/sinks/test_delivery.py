"""What workers deliver to sinks: everything of every run, once, in order, whoever was there when it happened."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client as TemporalClient

from holdfast.client import Settings
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.wire.event_envelope import from_dict, to_dict
from holdfast.sinks import Batch, JsonLines, delivery
from tests.sinks.delivering import end_sink, events_in, expected_of, run_of, until, worker_with

pytestmark = pytest.mark.temporal

ASKING = AgentDefinition(name="asking", tools="all", llm=LLM(model="adder"), approvals=(ApprovalRule(tools=("add",)),))


class Stuck:
    """Takes nothing and does not say so."""

    name = "stuck"

    def __init__(self) -> None:
        self.offered: list[Batch] = []

    async def open(self) -> None: ...

    async def deliver(self, batch: Batch) -> None:
        self.offered.append(batch)
        await asyncio.Event().wait()

    async def close(self) -> None: ...


def in_order(events: list[dict[str, Any]]) -> bool:
    """Whether the events of each execution come in the order of their numbers."""
    own: dict[str, list[int]] = defaultdict(list)
    for each in events:
        own[each["execution_id"]].append(each["sequence"])
    return all(numbers == list(range(1, len(numbers) + 1)) for numbers in own.values())


async def done_in(temporal: TemporalClient, execution_id: str) -> Counter[str]:
    """Return what a run's history has but for tasks of workers, whose number says how busy they were."""
    found: Counter[str] = Counter()
    handle = temporal.get_workflow_handle(execution_id)
    run_id = (await handle.describe()).raw_description.workflow_execution_info.first_run_id
    while run_id:
        history = await temporal.get_workflow_handle(execution_id, run_id=run_id).fetch_history()
        found.update(EventType.Name(each.event_type) for each in history.events)
        run_id = history.events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return Counter({name: count for name, count in found.items() if "WORKFLOW_TASK" not in name})


async def test_every_event_of_every_run_comes_once_and_in_order_to_the_file(settings: Settings, tmp_path: Path) -> None:
    path, stuck, restless = tmp_path / "events.jsonl", Stuck(), replace(settings, continue_events=1)
    async with worker_with(restless) as client:  # nobody delivers yet
        earlier = await run_of(client)
    async with worker_with(restless, [JsonLines(path), stuck]) as client:
        await until(lambda: bool(stuck.offered), lambda: "the stuck sink was offered nothing")
        later = await run_of(client)
        expected = await expected_of(client, [*earlier, *later])
        await until(lambda: len(events_in(path)) >= len(expected), lambda: len(events_in(path)))
    events = events_in(path)
    assert sorted(each["id"] for each in events) == sorted(expected)
    assert len(expected) > 40
    assert in_order(events)
    assert [to_dict(from_dict(each)) for each in events] == events
    assert {each["parent_agent_id"] is None for each in events} == {True, False}, "a subagent's, too"
    assert len(stuck.offered) == 1
    histories = [await done_in(client.temporal, each) for each in (earlier[0], later[0])]
    assert histories[0] == histories[1], "neither a sink nor a stuck one is in a run's history"
    assert histories[0]["EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW"] > 0
    async with worker_with(restless, [JsonLines(path)]):  # what is known is not told again
        third = await run_of(client)
        expected += await expected_of(client, third)
        await until(lambda: len(events_in(path)) >= len(expected), lambda: len(events_in(path)))
    assert sorted(each["id"] for each in events_in(path)) == sorted(expected)
    for consumer in ("jsonl", "stuck"):
        await end_sink(client.temporal, settings, consumer)


@pytest.mark.slow
async def test_runs_that_wait_keep_no_other_run_from_being_told(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "SINK_FOLLOWED_MAX", 1)
    monkeypatch.setattr(delivery, "REST_SECONDS", 0.2)
    path = tmp_path / "events.jsonl"

    def told(execution_id: str) -> list[str]:
        return [each["kind"] for each in events_in(path) if each["execution_id"] == execution_id]

    async with worker_with(settings, [JsonLines(path)]) as client:
        waiting = await client.start(ASKING, "Add.")
        await until(lambda: "ApprovalRequested" in told(waiting), lambda: told(waiting))
        others = await run_of(client)
        await until(lambda: "AgentExecutionCompleted" in told(others[0]), lambda: told(others[0]))
        await client.stop(waiting)
        await until(lambda: told(waiting)[-1] == "AgentExecutionCompleted", lambda: told(waiting))
    assert in_order(events_in(path))
    await end_sink(client.temporal, settings, "jsonl")


@pytest.mark.slow
async def test_a_sink_that_cannot_be_opened_is_opened_later(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "events.jsonl"
    other = JsonLines(path)
    await other.open()
    async with worker_with(settings, [JsonLines(path)]) as client:
        ids = await run_of(client)
        await until(lambda: "locked by another process" in caplog.text, lambda: caplog.text)
        assert events_in(path) == []
        await other.close()
        expected = await expected_of(client, ids)
        await until(lambda: len(events_in(path)) >= len(expected), lambda: len(events_in(path)))
    await end_sink(client.temporal, settings, "jsonl")
