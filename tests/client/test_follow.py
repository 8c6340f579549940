"""Following a run: it is left alone by those who do, and they are told its end, whoever is slow, away or intervenes."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from temporalio.client import Client, WorkflowHandle, WorkflowHistoryEventAsyncIterator

from holdfast import AgentDefinition, tool
from holdfast.client import Holdfast, Settings, runs, watch
from holdfast.client.workflow_queries import queried
from holdfast.connection import workflow_reader
from holdfast.connection.worker_settings import WorkerSettings
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.bounds import CONTINUE_EVENTS
from holdfast.core.base.errors import ExecutionFailed, ServerUnavailable
from holdfast.core.wire.paging import StateReader
from holdfast.testing.holds import Hold
from holdfast.testing.script import Reply, call, say
from tests.resets import reset
from tests.serving import Serve, served
from workflows.replay_guard import STARTED_OVER

CLERK = AgentDefinition(name="clerk", tools=("look",))
RUNS = 8
FOLLOWERS = 3
CACHED = WorkerSettings(cached_runs=100)
"""A worker without a cache reads beyond a run's last task for each query."""


@tool
def look() -> str:
    """Look."""
    return "seen"


async def last_state(client: Holdfast, execution_id: str) -> AgentState:
    return [state async for state in client.follow(execution_id)][-1]


async def collect(states: list[AgentState], following: AsyncGenerator[AgentState, None]) -> None:
    async for each in following:
        states.append(each)  # noqa: PERF401  # those before an error are kept


@pytest.mark.temporal
@pytest.mark.parametrize("events", [CONTINUE_EVENTS, 1], ids=["in one run", "in a run for each step"])
async def test_no_task_of_a_run_that_is_followed_from_its_start_begins_anew(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture, events: int
) -> None:
    caplog.set_level(logging.INFO, logger="workflows.replay_guard")

    def turn(request: dict[str, Any]) -> Reply:
        looked = any(each["role"] == "tool" for each in request["messages"])
        return say("done", delay_seconds=0.5) if looked else dataclasses.replace(call("look"), delay_seconds=0.5)

    here, offer = dataclasses.replace(settings, continue_events=events), Toolset(tools=(look,))
    async with served(here, tmp_path / "ledger.jsonl", turn, offer, serving=CACHED) as at_work:
        client = at_work.client
        ids = [await client.start(CLERK, "Go.") for _ in range(RUNS)]
        final = await asyncio.gather(*(last_state(client, id_) for id_ in ids for _ in range(FOLLOWERS)))
    assert {each.final_response for each in final} == {"done"}
    assert [each for each in caplog.messages if STARTED_OVER in each] == []


@pytest.mark.temporal
@pytest.mark.timeout(120)
@pytest.mark.parametrize("late", [False, True], ids=["while it is followed", "after its end"])
async def test_who_follows_a_run_that_is_reset_is_told_its_new_end(serve: Serve, *, late: bool) -> None:
    hold = Hold()

    def turn(request: dict[str, Any]) -> Reply:
        if sum(each["role"] == "tool" for each in request["messages"]) < 2:
            return call("look")
        return say("again", delay_seconds=1) if hold.held else Reply(text="at first", hold=hold)

    states: list[AgentState] = []
    async with serve(turn, [look]) as at_work:
        execution_id = await at_work.client.start(CLERK, "go")
        await hold.until_held()
        following = at_work.client.follow(execution_id)
        states.append(await anext(following))
        if late:
            hold.release()
            await at_work.client.result(execution_id)
        await reset(at_work.client, execution_id, 2)
        states += [each async for each in following]
        hold.release()
    assert (states[-1].final_response, states[-1].step_count) == ("again", 3)
    assert [each.role for each in states[-1].messages] == ["user", *["assistant", "tool"] * 2, "assistant"]


@pytest.mark.temporal
async def test_a_run_that_the_server_ends_is_told_as_failed_after_the_state_that_it_was_left_in(serve: Serve) -> None:
    hold = Hold()
    async with serve([call("look"), Reply(text="never", hold=hold)], [look], serving=CACHED) as at_work:
        execution_id = await at_work.client.start(CLERK, "Go.")
        await hold.until_held()
        client, told, told_late = at_work.client, list[AgentState](), list[AgentState]()
        following = client.follow(execution_id)
        told.append(await anext(following))
        await client.temporal.get_workflow_handle(execution_id).terminate(reason="enough")
        for states, each in ((told, following), (told_late, client.follow(execution_id))):
            with pytest.raises(ExecutionFailed, match="enough"):
                await collect(states, each)
        hold.release()
    assert [each.steps[0].tool_executions[0].result for each in (told[-1], told_late[-1])] == ["seen", "seen"]


@pytest.mark.temporal
async def test_a_run_that_the_server_ends_is_told_as_failed_where_no_worker_is(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = Hold()
    async with serve([Reply(text="never", hold=hold)], serving=WorkerSettings(grace_seconds=0.1)) as at_work:
        client = at_work.client
        execution_id = await client.start(CLERK.model_copy(update={"tools": ()}), "Go.")
        await hold.until_held()
    hold.release()
    await client.temporal.get_workflow_handle(execution_id).terminate(reason="enough")
    monkeypatch.setattr(workflow_reader, "ASK_TIMEOUT", timedelta(seconds=3))  # the server itself needs some of it
    with pytest.raises(ExecutionFailed, match="enough"):
        [each async for each in client.follow(execution_id)]


@pytest.mark.temporal
async def test_a_run_that_has_ended_is_read_once(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pages its history has."""
    fetch, asked = WorkflowHistoryEventAsyncIterator.fetch_next_page, list[object]()

    async def fetch_a_little(pages: WorkflowHistoryEventAsyncIterator) -> None:
        await fetch(pages, page_size=2)

    async def counted(temporal: Client, handle: WorkflowHandle[Any, Any], name: str, *rest: object) -> object:
        asked.append(name)
        return await cast("Any", queried)(temporal, handle, name, *rest)

    async with serve([call("look"), say("done")], [look], serving=CACHED) as at_work:
        execution_id = await at_work.client.start(CLERK, "Go.")
        await at_work.client.result(execution_id)
        monkeypatch.setattr(WorkflowHistoryEventAsyncIterator, "fetch_next_page", fetch_a_little)
        monkeypatch.setattr(runs, "queried", counted)
        states = [state async for state in at_work.client.follow(execution_id)]
    assert [each.final_response for each in states] == ["done"]
    assert len(asked) == 1


SERVER = cast("Any", SimpleNamespace(temporal=None, closed_runs=None))
STORED = cast("AgentState", "the state that is kept in the store")


class SlowHistory:
    """The history of a run, whose second news are its end, and take longer than a follower rests between readings."""

    over, ended_well, next_run_id, run_id = False, True, None, "r1"
    server_stays_away = False
    told = False

    async def news(self) -> None:
        if self.told:
            await asyncio.sleep(0.3)
            if self.server_stays_away:
                raise ServerUnavailable("two minutes without a server")
            self.over = True
        self.told = True


class OneRun:
    """An execution that has one run, which goes on."""

    async def info(self) -> object:
        return SimpleNamespace(execution=SimpleNamespace(run_id="r1"))

    async def is_closed(self, _run_id: str) -> bool:
        return False

    async def reset_to(self, _run_id: str) -> str | None:
        return None


async def no_worker(states: StateReader, run_id: str, *, over: bool) -> AgentState | None:
    assert (states.head, run_id) == (None, SlowHistory.run_id)
    if not over:
        raise ServerUnavailable("no worker")
    return STORED


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowHistory:
    history = SlowHistory()
    monkeypatch.setattr(watch, "UNREAD_SECONDS", 0.01)
    monkeypatch.setattr(watch, "FOLLOW_SECONDS", 0.0)
    monkeypatch.setattr(watch, "History", Mock(return_value=history))
    monkeypatch.setattr(watch, "Reader", Mock(return_value=OneRun()))
    return history


async def test_a_slow_server_tells_the_end_while_no_worker_is_there(slow: SlowHistory) -> None:
    async with asyncio.timeout(60):
        assert [each async for each in watch.follow(SERVER, "e", no_worker)] == [STORED]
    assert slow.over


async def test_a_server_that_stays_away_ends_a_follower_that_no_worker_answers(slow: SlowHistory) -> None:
    slow.server_stays_away = True
    with pytest.raises(ServerUnavailable, match="two minutes"):
        async with asyncio.timeout(60):
            [each async for each in watch.follow(SERVER, "e", no_worker)]
