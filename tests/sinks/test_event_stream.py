"""Events of sessions at sinks: each once and in order, over new Temporal runs, absence from the server and deaths."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pytest
from temporalio.client import WorkflowExecutionStatus

from holdfast.client import AgentHandle, Holdfast, Settings
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.base.errors import ServerUnavailable
from holdfast.core.wire.event_envelope import to_dict
from holdfast.core.wire.session_events import SESSION_KINDS
from holdfast.core.wire.workflow_ids import session_workflow_id
from holdfast.sinks import JsonLines, delivery, stream_discovery
from holdfast.sinks.event_follower import HistoryPosition, Readers
from holdfast.sinks.event_stream import EventStream
from holdfast.sinks.webhook import Webhook
from holdfast.testing.openai_server import FakeOpenAI
from tests.chaos.processes import worker
from tests.sinks.delivering import end_sink, events_in, until, worker_with
from tests.sinks.dying import FOLDER
from tests.sinks.examples import NUMBERED
from tests.sinks.receiver import receiving
from workflows import event_log

T = TypeVar("T")
FRIEND = AgentDefinition(name="friend", tools=(), llm=LLM(model="kid"))
LIFE = ["SessionCreated", "MessageAccepted", "SessionChanged", "SessionSuspended", "MessageAccepted", "SessionResumed"]
"""What `lived` makes of a session."""


def test_an_event_leads_to_its_stream_and_a_key_to_it_again() -> None:
    streams = {EventStream.of(each) for each in NUMBERED}
    assert len(streams) == 2
    assert {EventStream.of_key(each.key) for each in streams} == streams


def of_sessions(events: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return what came of sessions, by agent."""
    own: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for each in events:
        if each["kind"] in SESSION_KINDS:
            own[each["agent_id"]].append(each)
    return dict(own)


async def lived(agent: AgentHandle, times: int = 1) -> None:
    """Have a session talk, change, be suspended and go on."""
    for number in range(times):
        await surely(partial(agent.ask, f"one {number}", message_id=str(uuid4())))
        await surely(partial(agent.change, system_prompt=f"Be brief, {number}."))
        await surely(agent.suspend)
        receipt = await surely(partial(agent.send, f"two {number}", message_id=str(uuid4())))
        await surely(agent.resume)
        await surely(partial(agent.answer, receipt))


async def surely(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask what is safe to be asked again until it is answered: a worker that dies on a busy machine takes its time."""
    while True:
        with suppress(ServerUnavailable):
            return await ask()


async def runs_of(client: Holdfast, agent_id: str) -> list[WorkflowExecutionStatus | None]:
    """Return how the Temporal runs of a session stand."""
    query = f"WorkflowId = '{session_workflow_id(agent_id)}'"
    return [each.status async for each in client.temporal.list_workflows(query)]


async def gone(client: Holdfast, agent_id: str) -> None:
    """Return when the session has left the server."""
    await client.temporal.get_workflow_handle(session_workflow_id(agent_id)).result()


@pytest.mark.slow
@pytest.mark.temporal
async def test_every_event_of_every_session_comes_once_and_in_order_to_file_and_endpoint(
    settings: Settings, tmp_path: Path
) -> None:
    path, restless = tmp_path / "events.jsonl", replace(settings, continue_events=1)
    async with worker_with(restless) as client, receiving() as receiver:  # nobody delivers yet
        holdfast = client
        agent = holdfast.agent(definition=FRIEND, tenant="acme", idle_seconds=0.2)
        await lived(agent, 2)
        await gone(client, agent.agent_id)
        async with worker_with(restless, [JsonLines(path), Webhook(receiver.url, name="crm")]):
            await agent.ask("back again")
            fork = await agent.fork()
            await fork.close()
            await gone(client, agent.agent_id)
            await agent.close()
            await gone(client, agent.agent_id)
            told = {each.agent_id: [to_dict(event) for event in await each.events()] for each in (agent, fork)}
            expected = sorted(each["id"] for each in (*told[agent.agent_id], *told[fork.agent_id]))

            def arrived() -> list[int]:
                ours = [each for own in of_sessions(events_in(path)).values() for each in own]
                return [len(ours), len([each for each in receiver.ids if each in expected])]

            await until(lambda: min(arrived()) >= len(expected), arrived)
            assert len(await runs_of(client, agent.agent_id)) > 5, "it went on in new runs, left, and came back"
    kinds = [each["kind"] for each in told[agent.agent_id]]
    assert kinds == [*LIFE, *LIFE[1:], "MessageAccepted", "SessionClosed"]
    assert [each["kind"] for each in told[fork.agent_id]] == ["SessionCreated", "SessionForked", "SessionClosed"]
    assert [each["sequence"] for each in told[agent.agent_id]] == [*range(1, len(kinds) + 1)]
    assert of_sessions(events_in(path)) == told, "each once, in order"
    assert sorted(each for each in receiver.ids if each in expected) == expected
    assert {each["tenant"] for each in told[agent.agent_id]} == {"acme"}
    assert told[fork.agent_id][1]["origin"]["agent_id"] == agent.agent_id
    for consumer in ("jsonl", "crm"):
        await end_sink(client.temporal, settings, consumer)


@pytest.mark.slow
@pytest.mark.temporal
async def test_idle_sessions_keep_no_other_from_being_told(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "SINK_FOLLOWED_MAX", 1)
    monkeypatch.setattr(delivery, "REST_SECONDS", 0.2)
    monkeypatch.setattr(stream_discovery, "SINK_LISTED_MAX", 2)
    path = tmp_path / "events.jsonl"
    async with worker_with(settings, [JsonLines(path)]) as client:
        holdfast = client
        agents = [holdfast.agent(definition=FRIEND) for _ in range(3)]
        for each in agents:
            await each.open()

        def kinds() -> list[list[str]]:
            own = of_sessions(events_in(path))
            return [[event["kind"] for event in own.get(each.agent_id, [])] for each in agents]

        await until(lambda: kinds() == [["SessionCreated"]] * 3, kinds)
        await agents[0].suspend()
        await until(lambda: kinds()[0] == ["SessionCreated", "SessionSuspended"], kinds)
        for each in agents:
            await each.close()
        await until(lambda: [each[-1] for each in kinds()] == ["SessionClosed"] * 3, kinds)
    assert [len(each) for each in kinds()] == [3, 2, 2]
    await end_sink(client.temporal, settings, "jsonl")


@pytest.mark.temporal
async def test_whether_an_idle_session_has_news_the_server_says_and_no_worker(settings: Settings) -> None:
    async with worker_with(settings) as client:
        agent = client.agent(definition=FRIEND)
        await agent.open()
    info = (await client.temporal.get_workflow_handle(session_workflow_id(agent.agent_id)).describe()).raw_description
    execution = info.workflow_execution_info.execution
    stream = EventStream(execution.workflow_id, execution.run_id)
    length = info.workflow_execution_info.history_length
    readers = Readers(client.temporal)
    assert await readers.stands_at(stream, HistoryPosition(execution.run_id, length))
    assert not await readers.stands_at(stream, HistoryPosition(execution.run_id, length - 1))
    await client.temporal.get_workflow_handle(execution.workflow_id).terminate()
    assert not await readers.stands_at(stream, HistoryPosition(execution.run_id, length + 1))


@pytest.mark.slow
@pytest.mark.temporal
async def test_what_a_session_holds_no_more_is_counted_and_the_rest_comes(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(event_log, "SESSION_EVENTS_MAX", 3)
    path = tmp_path / "events.jsonl"
    async with worker_with(settings) as client:
        agent = client.agent(definition=FRIEND)
        await lived(agent)
        held = [to_dict(each) for each in await agent.events()]
    assert [each["sequence"] for each in held] == [4, 5, 6]
    async with worker_with(settings, [JsonLines(path)]):
        await until(lambda: len(of_sessions(events_in(path)).get(agent.agent_id, [])) >= 3, lambda: events_in(path))
        await agent.close()
        await until(lambda: len(of_sessions(events_in(path))[agent.agent_id]) >= 4, lambda: events_in(path))
    own = of_sessions(events_in(path))[agent.agent_id]
    assert (own[:3], [each["sequence"] for each in own]) == (held, [4, 5, 6, 7])
    assert f"the events 1 to 3 of {session_workflow_id(agent.agent_id)}/{own[0]['temporal_run_id']}" in caplog.text
    assert caplog.text.count("are gone: ") == 1
    await end_sink(client.temporal, settings, "jsonl")


@pytest.mark.slow
@pytest.mark.temporal
@pytest.mark.timeout(300)
async def test_what_a_killed_worker_was_delivering_of_sessions_comes_once(settings: Settings, tmp_path: Path) -> None:
    restless, path = replace(settings, continue_events=1), tmp_path / "events.jsonl"
    (tmp_path / "whole").touch()  # one death will do
    environment = {"HOLDFAST_SINKS": "audit=python:tests.sinks.dying:Dying", FOLDER: str(tmp_path)}
    async with AsyncExitStack() as stack:
        endpoint = await stack.enter_async_context(FakeOpenAI([]))
        client = await Holdfast.connect(restless)
        agents = [client.agent(definition=FRIEND, idle_seconds=0.2) for _ in range(2)]
        workers = [worker(restless, endpoint, tmp_path / "ledger.jsonl", environment) for _ in range(2)]
        await asyncio.gather(*(stack.enter_async_context(each) for each in workers))
        await asyncio.gather(*(lived(each) for each in agents))
        await until((tmp_path / "half").exists, lambda: [each.name for each in tmp_path.iterdir()])
        await asyncio.gather(*(each.close() for each in agents))
        told = {each.agent_id: [to_dict(event) for event in await each.events()] for each in agents}
        expected = sum(map(len, told.values()))

        def arrived() -> int:
            return sum(map(len, of_sessions(events_in(path)).values()))

        await until(lambda: arrived() >= expected, arrived)
    assert [[event["kind"] for event in each] for each in told.values()] == [[*LIFE, "SessionClosed"]] * 2
    assert of_sessions(events_in(path)) == told
    await end_sink(client.temporal, settings, "audit")
