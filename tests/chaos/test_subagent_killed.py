"""A worker that dies at any point of a run with a subagent costs nothing: same end, no answered call asked again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.service import RPCError

from holdfast.client import Holdfast, Settings
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus, call_name, named_id
from holdfast.testing.ledger import Ledger
from holdfast.testing.openai_server import FakeOpenAI, RequestRecord
from holdfast.testing.script import Call, Reply, calls, say, turn_number
from tests.chaos.processes import events_of, worker

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]

HELPER = AgentDefinition(name="helper", system_prompt="helper", tools=("note",))
BOSS = AgentDefinition(name="boss", system_prompt="boss", tools=(), subagents=("helper",))
CALLS = 5
"""Two of the boss, and three of the helper."""

RUNS_AT_ONCE = 5
KILL_BOSS_AT = (6, 9, 13, 16)
"""Ids of events in the boss's history, and"""

KILL_HELPER_AT = (2, 8, 14, 20)
"""in the helper's."""

EVENTS_MAX = 40
"""More than either has."""


def plays(request: dict[str, Any]) -> Reply:
    number = turn_number(request)
    if request["messages"][0]["content"] == "boss":
        wanted = Call("spawn", {"agent": "helper", "task": "note two things"})
        return calls(wanted, delay_seconds=0.2) if number == 0 else say("both noted", delay_seconds=0.2)
    note = Call("note", {"text": ("one", "two", "")[number]})
    return calls(note, delay_seconds=0.2) if number < 2 else say("noted", delay_seconds=0.2)


@pytest.mark.slow
async def test_a_worker_killed_while_a_subagent_runs_loses_and_repeats_nothing(
    settings: Settings, tmp_path: Path
) -> None:
    assert await survive(settings, tmp_path, "boss", KILL_BOSS_AT) >= len(KILL_BOSS_AT) - 1
    assert await survive(settings, tmp_path, "helper", KILL_HELPER_AT) >= len(KILL_HELPER_AT) - 1


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("whose", ["boss", "helper"])
async def test_a_worker_killed_at_each_event_of_a_run_with_a_subagent_loses_nothing(
    settings: Settings, tmp_path: Path, whose: str
) -> None:
    assert await survive(settings, tmp_path, whose, range(1, EVENTS_MAX)) >= 18


async def survive(settings: Settings, folder: Path, whose: str, kill_at: Iterable[int]) -> int:
    """Kill a worker at each of these events, each in a run of its own; return at how many different ones it died."""
    at_once = asyncio.Semaphore(RUNS_AT_ONCE)

    async def run(event_id: int) -> int:
        async with at_once:
            own = replace(settings, task_queue=f"{settings.task_queue}-{whose}-{event_id}")
            return await survives_a_kill(own, folder / f"{whose}-{event_id}.jsonl", whose, event_id)

    return len(set(await asyncio.gather(*(run(event_id) for event_id in kill_at))))


async def survives_a_kill(settings: Settings, ledger: Path, whose: str, event_id: int) -> int:
    """Run the tree, kill its worker at the event, finish on another; return the event it was killed at."""
    async with FakeOpenAI(plays) as endpoint:
        client = await Holdfast.connect(settings)
        async with worker(settings, endpoint, ledger) as first:
            execution_id = await client.start(BOSS, "note two things", subagents=[HELPER])
            child = named_id(execution_id, call_name(1, 0))
            if whose == "helper":
                await endpoint.until(lambda all_: any(each.status == 200 for each in all_), 30)
            seen = await _events_until(client, execution_id if whose == "boss" else child, event_id)
            answered = [each for each in endpoint.requests if each.outcome == "answered"][:-1]
            first.kill()
        async with worker(settings, endpoint, ledger):
            state = await client.result(execution_id)
    assert (state.status, state.final_response) == (ExecutionStatus.COMPLETED, "both noted"), event_id
    assert [each.result for each in state.steps[0].tool_executions] == ["noted"], event_id
    assert state.usage.total_tokens - state.usage.estimated_tokens == CALLS * 120, event_id
    asked = Counter(_call(each) for each in endpoint.requests)
    assert all(asked[_call(each)] == 1 for each in answered), (event_id, asked)
    assert sum(asked.values()) <= CALLS + 1, "only the call in flight may be asked again"
    _each_note_has_one_key(Ledger(ledger))
    return seen


async def _events_until(client: Holdfast, execution_id: str, event_id: int) -> int:
    """Return when the execution, which may have yet to begin, has so many events; with fewer of them when it ends."""
    async with asyncio.timeout(90):
        while True:
            seen = 0
            try:
                async for _ in events_of(client, execution_id):
                    seen += 1
                    if seen == event_id:
                        return seen
            except RPCError:
                await asyncio.sleep(0.02)
            else:
                return seen


def _call(request: RequestRecord) -> tuple[str, int]:
    return request.body["messages"][0]["content"], turn_number(request.body)


def _each_note_has_one_key(ledger: Ledger) -> None:
    keys = {(entry.detail["text"], entry.key) for entry in ledger.entries()}
    assert len(keys) == len({text for text, _ in keys}) == 2
    assert all(ledger.count(phase="finished", key=key) >= 1 for _, key in keys)
