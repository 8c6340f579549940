"""A worker that dies at any point of a run costs nothing: same transcript, no answered model call asked again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType

from holdfast.client import Holdfast, Settings
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.bounds import CONTINUE_EVENTS
from holdfast.core.base.errors import ServerUnreachable
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import Outcome
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.server.worker_process import WorkerProcess
from holdfast.testing.ledger import Ledger
from holdfast.testing.openai_server import FakeOpenAI, RequestRecord
from holdfast.testing.script import DEFAULT_USAGE, Call, Reply, calls, say
from tests.chaos.processes import READY_SECONDS_MAX, events_of, worker

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(240)]

AGENT = AgentDefinition(name="noter", tools=("note", "pay"))
SCRIPT = [
    calls(Call("note", {"text": "one"}), delay_seconds=0.2),
    calls(Call("note", {"text": "two"}), Call("note", {"text": "three"}), delay_seconds=0.2),
    calls(Call("note", {"text": "four"}), delay_seconds=0.2),
    say("all noted", delay_seconds=0.2),
]
RUNS_AT_ONCE = 5
CONNECTS_MAX = 3
ACTIVITY_COMPLETED = int(EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
KILL_AT = (3, 5, 6, 9, 12, 16, 19, 23, 28, 33)
"""Ids of history events: among them a workflow task, the tools' choice, model calls, single and parallel tools."""

KILL_RESTLESS_AT = (8, 13, 16, 25, 34, 44)
"""The same where each step's end begins a new run."""

EVENTS_MAX = 60
"""More than such a run has, in however many runs."""


async def killed_at_event(client: Holdfast, execution_id: str, event_id: int, process: WorkerProcess) -> list[int]:
    """Kill the worker as soon as the history has so many events; return their types."""
    seen: list[int] = []
    async for event in events_of(client, execution_id):
        seen.append(event.event_type)
        if len(seen) == event_id:
            process.kill()
            break
    return seen


def said(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """The transcript as far as the model sees it."""
    return [(message.role, message.text) for message in messages]


EXPECTED = [
    ("user", "note four things"),
    ("assistant", ""),
    ("tool", "noted one"),
    ("assistant", ""),
    ("tool", "noted two"),
    ("tool", "noted three"),
    ("assistant", ""),
    ("tool", "noted four"),
    ("assistant", "all noted"),
]


@pytest.mark.slow
async def test_a_worker_killed_at_any_event_of_the_history_loses_and_repeats_nothing(
    settings: Settings, tmp_path: Path
) -> None:
    killed_at = await survives_kills(settings, tmp_path, KILL_AT)
    assert len(set(killed_at)) == len(KILL_AT) >= 10


@pytest.mark.slow
async def test_a_worker_killed_while_every_step_goes_on_in_a_new_run_loses_and_repeats_nothing(
    settings: Settings, tmp_path: Path
) -> None:
    killed_at = await survives_kills(replace(settings, continue_events=1), tmp_path, KILL_RESTLESS_AT)
    assert len(set(killed_at)) == len(KILL_RESTLESS_AT)


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize("continue_events", [CONTINUE_EVENTS, 1])
async def test_a_worker_killed_at_each_event_loses_and_repeats_nothing(
    settings: Settings, tmp_path: Path, continue_events: int
) -> None:
    often = replace(settings, continue_events=continue_events)
    killed_at = await survives_kills(often, tmp_path, range(1, EVENTS_MAX))
    assert len(set(killed_at)) >= 35


async def survives_kills(settings: Settings, folder: Path, kill_at: Iterable[int]) -> list[int]:
    """Do what `survives_a_kill` does for each of the events; return at which events workers were killed."""
    at_once = asyncio.Semaphore(RUNS_AT_ONCE)

    async def run(event_id: int) -> int:
        async with at_once:
            own = replace(settings, task_queue=f"{settings.task_queue}-{event_id}")
            return await survives_a_kill(own, folder / f"{event_id}.jsonl", event_id)

    return await asyncio.gather(*(run(event_id) for event_id in kill_at))


async def connected(settings: Settings) -> Holdfast:
    """Return a client, also of a server that so many starts of workers beside it keep from answering at first."""
    for _ in range(CONNECTS_MAX - 1):
        with suppress(ServerUnreachable):
            return await Holdfast.connect(settings)
    return await Holdfast.connect(settings)


async def survives_a_kill(settings: Settings, ledger: Path, event_id: int) -> int:
    """Run the agent, kill its worker at the event, finish on another; return the event it was killed at."""
    async with FakeOpenAI(SCRIPT) as endpoint:
        client = await connected(settings)
        async with worker(settings, endpoint, ledger) as first:
            execution_id = await client.start(AGENT, "note four things")
            before = await killed_at_event(client, execution_id, event_id, first)
        answered = _turns_answered(before.count(ACTIVITY_COMPLETED))
        async with worker(settings, endpoint, ledger):
            state = await client.result(execution_id)
        assert state.status is ExecutionStatus.COMPLETED, event_id
        assert said(state.messages) == EXPECTED, event_id
        asked = [_turn(request) for request in endpoint.requests]
        assert all(asked.count(turn) == 1 for turn in range(answered)), (event_id, asked)
        assert len(asked) <= len(SCRIPT) + 1, "only the call in flight may be asked again"
        _each_note_has_one_key(Ledger(ledger))
    return len(before)


async def test_a_tool_that_may_run_once_is_not_repeated_and_the_model_is_told(
    settings: Settings, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "tools.jsonl")
    script = [calls(Call("pay", {"amount": 5, "seconds": 30})), say("I could not tell")]
    async with FakeOpenAI(script) as endpoint:
        client = await Holdfast.connect(settings)
        async with worker(settings, endpoint, tmp_path / "tools.jsonl") as first:
            execution_id = await client.start(AGENT, "pay 5")
            async with asyncio.timeout(READY_SECONDS_MAX):
                while not ledger.count(name="pay"):  # noqa: ASYNC110  # a file tells nobody that it has grown
                    await asyncio.sleep(0.02)
            first.kill()
        async with worker(settings, endpoint, tmp_path / "tools.jsonl"):
            state = await client.result(execution_id)
    assert ledger.count(name="pay") == 1
    execution = state.step_executions[0].step.tool_executions[0]
    assert execution.outcome is Outcome.FAILED
    assert execution.error is not None
    assert execution.error.type == "OutcomeUnknown"
    assert "unknown" in state.messages[2].content


@pytest.mark.slow
async def test_a_time_limit_that_strikes_without_a_worker_makes_no_further_model_call(
    settings: Settings, tmp_path: Path
) -> None:
    async with FakeOpenAI([say("too late", delay_seconds=600)]) as endpoint:
        client = await Holdfast.connect(settings)
        async with worker(settings, endpoint, tmp_path / "tools.jsonl") as first:
            execution_id = await client.start(AGENT, "wait", budget=ExecutionBudget(max_seconds=6))
            await endpoint.until(lambda requests: len(requests) == 1, READY_SECONDS_MAX)
            first.kill()
        async for event in client.temporal.get_workflow_handle(execution_id).fetch_history_events(wait_new_event=True):
            if event.event_type == EventType.EVENT_TYPE_TIMER_FIRED:
                break
        async with worker(settings, endpoint, tmp_path / "tools.jsonl"):
            state = await client.result(execution_id)
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.TIME_LIMIT)
    assert len(endpoint.requests) == 1
    assert state.usage.estimated_tokens > 0, "the attempt that was lost counts as well"


@pytest.mark.slow
@pytest.mark.parametrize("end", ["kill", "drain"])
async def test_a_stop_while_no_worker_lives_makes_no_further_model_call(
    settings: Settings, tmp_path: Path, end: str
) -> None:
    async with FakeOpenAI([say("too late", delay_seconds=600)]) as endpoint:
        client = await Holdfast.connect(settings)
        async with worker(settings, endpoint, tmp_path / "tools.jsonl", {"HOLDFAST_WORKER_GRACE": "1"}) as first:
            execution_id = await client.start(AGENT, "wait")
            await endpoint.until(lambda requests: len(requests) == 1, READY_SECONDS_MAX)
            await asyncio.to_thread(first.kill if end == "kill" else first.stop)
        await client.stop(execution_id)
        async with worker(settings, endpoint, tmp_path / "tools.jsonl"):
            state = await client.result(execution_id)
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)
    assert len(endpoint.requests) == 1
    assert state.usage.estimated_tokens > 0, "the attempt that was lost counts as well"


@pytest.mark.slow
async def test_a_worker_killed_in_the_middle_of_a_streamed_answer_is_no_part_of_the_answer(
    settings: Settings, tmp_path: Path
) -> None:
    words = " ".join(f"word{number}" for number in range(40))
    script = [say(words, failures=(Reply(text=words, pieces_max=20, hang=True),))]
    async with FakeOpenAI(script) as endpoint:
        client = await Holdfast.connect(settings)
        async with worker(settings, endpoint, tmp_path / "tools.jsonl") as first:
            execution_id = await client.start(AGENT, "speak")
            await text_has_come(client, execution_id)
            first.kill()
        async with worker(settings, endpoint, tmp_path / "tools.jsonl"):
            state = await client.result(execution_id)
    assert said(state.messages) == [("user", "speak"), ("assistant", words)]
    assert [request.outcome for request in endpoint.requests] == ["disconnected-by-client", "answered"]
    assert state.usage.total_tokens - state.usage.estimated_tokens == sum(DEFAULT_USAGE)
    assert state.usage.estimated_tokens > 0, "the attempt that was lost counts as well"


async def text_has_come(client: Holdfast, execution_id: str) -> None:
    """Return when the worker has told the server of a part of an answer: the heartbeats' details hold it."""
    handle = client.temporal.get_workflow_handle(execution_id)
    async with asyncio.timeout(READY_SECONDS_MAX):
        while True:
            described = (await handle.describe()).raw_description.pending_activities
            details = [payload.data for each in described for payload in each.heartbeat_details.payloads]
            if any(json.loads(data).get("chars", 0) for data in details):
                return
            await asyncio.sleep(0.02)


def _turn(request: RequestRecord) -> int:
    """Which turn of the conversation a request asks for."""
    return sum(message["role"] == "assistant" for message in request.body["messages"])


def _turns_answered(completed: int) -> int:
    """How many model calls are among the first so many completed activities: steps of one, two, one and no tool."""
    turns = 0
    for tools in (1, 2, 1, 0):
        if completed <= 0:
            break
        turns += 1
        completed -= 1 + tools
    return turns


def _each_note_has_one_key(ledger: Ledger) -> None:
    entries = ledger.entries()
    keys = {(entry.detail["text"], entry.key) for entry in entries}
    assert len(keys) == len({text for text, _ in keys}) == 4
    assert all(ledger.count(phase="finished", key=key) >= 1 for _, key in keys)
