"""A worker that dies at any moment of a session costs nothing: no message, no answered model call, no effect twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.client import Holdfast, Settings
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.state import AgentState
from holdfast.core.wire.session_contracts import Receipt, SessionView
from holdfast.testing.ledger import Ledger
from holdfast.testing.openai_server import FakeOpenAI
from tests.chaos.processes import worker
from tests.chaos.sessions import (
    ASKED,
    CLERK,
    HELPER,
    OUT_OF_REACH,
    PATIENCE,
    PAUSE_SECONDS,
    RESTLESS,
    SAID,
    Seen,
    acknowledged,
    asked_by,
    model,
    person,
)
from tests.workflows.chats import Chat, ids, texts

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300)]

SESSIONS_AT_ONCE = 4
KILL_AT = (20, 52, 88, 124, 160)
"""How many events the histories of session, executions and subagent have together when the worker dies."""

EVENTS_MAX = 190
"""More than they have."""


@pytest.mark.slow
async def test_a_worker_killed_in_a_session_loses_no_message_and_asks_nothing_again(
    settings: Settings, tmp_path: Path
) -> None:
    killed_at = await survives_kills(settings, tmp_path, KILL_AT)
    assert len(killed_at) == len(KILL_AT), "each of them fell into the session's life"


@pytest.mark.chaos
@pytest.mark.timeout(3_600)
async def test_a_worker_killed_at_each_event_of_a_session_loses_no_message_and_asks_nothing_again(
    settings: Settings, tmp_path: Path
) -> None:
    killed_at = await survives_kills(settings, tmp_path, range(1, EVENTS_MAX))
    assert len(killed_at) >= 120


async def survives_kills(settings: Settings, folder: Path, kill_at: Iterable[int]) -> list[int]:
    """Do what `survives_a_kill` does for each number of events; return those that came while the session worked."""
    at_once = asyncio.Semaphore(SESSIONS_AT_ONCE)

    async def run(events: int) -> int | None:
        async with at_once:
            own = replace(settings, task_queue=f"{settings.task_queue}-{events}")
            return await survives_a_kill(own, folder / f"{events}.jsonl", events)

    return [each for each in await asyncio.gather(*(run(events) for events in kill_at)) if each is not None]


async def survives_a_kill(settings: Settings, ledger: Path, events: int) -> int | None:
    """Say two things to an agent, kill its worker, have another one finish; return when it was killed, if it was."""
    async with FakeOpenAI(model) as endpoint:
        client = await Holdfast.connect(settings)
        chat = Chat(client, CLERK, RESTLESS, subagents=(HELPER,))
        seen = Seen(client, chat.agent_id)
        deciding = asyncio.create_task(person(chat))
        seen.watch()
        try:
            async with worker(settings, endpoint, ledger) as first:
                talking = asyncio.create_task(_talk(chat))
                answered = asyncio.create_task(_answered(chat, talking))
                reached = asyncio.create_task(seen.until(lambda now: now.events >= events))
                await asyncio.wait({answered, reached}, return_when=asyncio.FIRST_COMPLETED)
                ended = answered.done()
                first.kill()
                before = dict(seen.calls_answered)
            async with worker(settings, endpoint, ledger):
                state = await answered
                view = await _seen_again(chat)
        finally:
            deciding.cancel()
            with suppress(asyncio.CancelledError):
                await deciding
            await seen.close()
        assert state.status is ExecutionStatus.COMPLETED, events
        assert texts(state) == SAID, events
        assert ids(state.messages) == ["go", "and on"], events
        assert (view.status, view.executions, view.waiting) == ("idle", 2, ()), events
        asked = asked_by(endpoint.requests, "clerk")
        first_calls = ASKED[: before.get("clerk", 0)]
        assert all(asked.count(place) == 1 for place in first_calls), (events, asked)
        helped = asked_by(endpoint.requests, "helper")
        assert len(helped) <= 2 - before.get("helper", 0), (events, helped)
        assert len(asked) + len(helped) <= len(ASKED) + 2, "only the call in flight may be asked again"
        entries = Ledger(ledger).entries(phase="finished")
        effects = {(each.detail["text"], each.key) for each in entries}
        assert {text for text, _ in effects} == {"one", "two", "three"}, events
        assert len(effects) == 3, (events, effects)
    return None if ended else events


async def _talk(chat: Chat) -> Receipt:
    await acknowledged(chat, "go")
    return await acknowledged(chat, "and on")


async def _answered(chat: Chat, talking: asyncio.Task[Receipt]) -> AgentState:
    receipt = await talking
    while True:
        with suppress(*OUT_OF_REACH, TimeoutError):
            return await asyncio.wait_for(chat.answer(receipt), 3 * PATIENCE.total_seconds())
        await asyncio.sleep(PAUSE_SECONDS)


async def _seen_again(chat: Chat) -> SessionView:
    """Return what the session is; a query that still waits for the worker that died is asked again."""
    while True:
        with suppress(*OUT_OF_REACH, TimeoutError):
            return await asyncio.wait_for(chat.view(), 3 * PATIENCE.total_seconds())
