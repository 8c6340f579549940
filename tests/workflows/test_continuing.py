"""An execution that goes on in a new run at every step's boundary: nobody notices, and nothing is lost."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError

from holdfast import AgentDefinition, ExecutionBudget, tool
from holdfast.client import ExecutionSummary, Holdfast, Settings
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.bounds import CONTINUE_EVENTS
from holdfast.core.conversation.messages import user_message
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.tools.tools import AnyTool
from holdfast.core.wire.contracts import (
    EVENTS_QUERY,
    MESSAGE_SIGNAL,
    STOP_SIGNAL,
    EventsPage,
    EventsRequest,
    StopRequest,
)
from holdfast.core.wire.execution_events import AgentStepCompleted
from holdfast.testing.script import Call, Reply, Script, calls, say
from tests.replay.replaying import replayer
from tests.serving import Served, served
from tests.workflows.chains import chain_of

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition(name="walker", tools="all", system_prompt="Walk on.")
STEPS = 12
LISTED_SECONDS_MAX = 90
LONG = "x" * 20_000


@tool
def look(number: int) -> str:
    """Look somewhere."""
    return f"{number}: {LONG}"


def walk(steps: int) -> list[Reply]:
    """Ask for a long result in each of so many steps, then answer."""
    return [*(calls(Call("look", {"number": number})) for number in range(steps)), say("arrived")]


Restless = Callable[..., AbstractAsyncContextManager[Served]]


@pytest.fixture
def restless(settings: Settings, tmp_path: Path) -> Restless:
    """Serve clients whose runs go on in a new one after every step."""

    @asynccontextmanager
    async def serving(script: Script, tools: Sequence[AnyTool] = (look,), events: int = 1) -> AsyncGenerator[Served]:
        often = dataclasses.replace(settings, continue_events=events)
        async with served(often, tmp_path / "ledger.jsonl", script, Toolset(tools=tuple(tools))) as each:
            yield each

    return serving


@pytest.mark.slow
async def test_every_step_in_a_run_of_its_own_asks_the_model_the_very_same(restless: Restless) -> None:
    asked: list[list[bytes]] = []
    for events in (CONTINUE_EVENTS, 1):
        async with restless(walk(STEPS), events=events) as served:
            execution_id = await served.client.start(AGENT, "Go.")
            state = await served.client.result(execution_id)
            runs = await chain_of(served.client, execution_id)
            asked.append([each.raw for each in served.endpoint.requests])
        assert (state.status, state.final_response) == (ExecutionStatus.COMPLETED, "arrived")
        assert state.step_count == STEPS + 1
        assert len(runs) == (1 if events > 1 else STEPS + 1)
    assert asked[0] == asked[1]


@pytest.mark.slow
async def test_each_run_replays_and_stays_small_however_long_the_conversation(restless: Restless) -> None:
    async with restless(walk(STEPS)) as served:
        execution_id = await served.client.start(AGENT, "Go.")
        await served.client.result(execution_id)
        runs = await chain_of(served.client, execution_id)
        for history in runs:
            await replayer(served.client.temporal.data_converter).replay_workflow(history)
    sizes = [sum(event.ByteSize() for event in history.events) for history in runs]
    assert max(sizes) < 100_000, sizes
    assert sum(sizes) < STEPS * 62_000, "the results are 20 KB each; none is in a history more than a few times"


async def test_a_run_is_listed_once_and_from_its_beginning(restless: Restless) -> None:
    async with restless(walk(3)) as served:
        execution_id = await served.client.start(AGENT, "Go.")
        state = await served.client.result(execution_id)
        lines: list[ExecutionSummary] = []
        async with asyncio.timeout(LISTED_SECONDS_MAX):
            while not lines or lines[0].status != "completed":  # the server's list is a moment late
                listed = await served.client.runs(100)
                lines = [each for each in listed if each.execution_id == execution_id]
        runs = await chain_of(served.client, execution_id)
    [line] = lines
    assert (line.status, line.started_at) == ("completed", state.running.started_at), "not its last Temporal run's"
    assert line.started_at < runs[-1].events[0].event_time.ToDatetime(UTC)


@pytest.mark.slow
async def test_watchers_miss_nothing_and_hear_nothing_twice(restless: Restless) -> None:
    async with restless(walk(STEPS)) as served:
        execution_id = await served.client.start(AGENT, "Go.")
        early = [each async for each in served.client.watch(execution_id)]
        late = [each async for each in served.client.watch(execution_id)]
    for told in (early, late):
        assert [each.step_number for each in told if isinstance(each, AgentStepCompleted)] == [*range(1, STEPS + 2)]
        kinds = [type(each).__name__ for each in told]
        assert kinds.count("AgentExecutionStarted") == 1
        assert kinds.count("InferenceRequestStarted") == STEPS + 1


async def test_a_page_of_events_says_where_the_earlier_ones_are(restless: Restless) -> None:
    async with restless(walk(2)) as served:
        execution_id = await served.client.start(AGENT, "Go.")
        await served.client.result(execution_id)
        handle = served.client.temporal.get_workflow_handle(execution_id)
        page: EventsPage = await handle.query(EVENTS_QUERY, EventsRequest(), result_type=EventsPage)
        assert page.first == page.start > 0
        before = served.client.temporal.get_workflow_handle(execution_id, run_id=page.previous_run_id)
        earlier: EventsPage = await before.query(EVENTS_QUERY, EventsRequest(), result_type=EventsPage)
    assert earlier.total == page.first
    assert earlier.first < earlier.total


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["now", "after_step"])
async def test_a_stop_reaches_whatever_run_there_is(restless: Restless, mode: str) -> None:
    script = [*walk(3)[:-1], say("too late", delay_seconds=2 if mode == "after_step" else 60)]
    async with restless(script) as served:
        execution_id = await served.client.start(AGENT, "Go.")
        await served.endpoint.until(lambda requests: len(requests) == 4)
        await served.client.stop(execution_id, "enough", mode="now" if mode == "now" else "after_step")
        state = await served.client.result(execution_id)
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)
    assert state.step_count == (3 if mode == "now" else 4)


async def test_a_stop_by_update_answers_with_the_end(restless: Restless) -> None:
    script = [*walk(3)[:-1], say("too late", delay_seconds=600)]
    async with restless(script) as served:
        execution_id = await served.client.start(AGENT, "Go.")
        await served.endpoint.until(lambda requests: len(requests) == 4)
        handle: Any = served.client.temporal.get_workflow_handle(execution_id)
        told = await handle.execute_update(STOP_SIGNAL, StopRequest(reason="enough"), result_type=str)
        state = await served.client.result(execution_id)
    assert told == state.status == "stopped"


@pytest.mark.slow
async def test_max_seconds_count_from_the_beginning_of_the_first_run(restless: Restless) -> None:
    @tool
    async def nap() -> str:
        """Sleep."""
        await asyncio.sleep(0.3)
        return "rested"

    script = [*[calls(Call("nap", {}))] * 50, say("never")]
    async with restless(script, [nap]) as served:
        state = await served.client.run(AGENT, "Go.", budget=ExecutionBudget(max_seconds=6))
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.TIME_LIMIT)
    assert 1 <= state.state.step_count < 21
    assert state.state.execution_duration is not None
    assert state.state.execution_duration.total_seconds() < 60


@pytest.mark.slow
async def test_limits_count_across_runs(restless: Restless) -> None:
    async with restless(walk(STEPS)) as served:
        state = await served.client.run(AGENT, "Go.", budget=ExecutionBudget(max_steps=7))
    assert (state.stop_reason, state.state.step_count) == (StopReason.STEPS_LIMIT, 7)


@pytest.mark.slow
async def test_messages_are_kept_whichever_run_they_meet(restless: Restless) -> None:
    async with restless(walk(STEPS)) as served:
        execution_id = await served.client.start(AGENT, "Go.")
        said: list[str] = []
        for number in range(20):
            text = f"message {number}"
            if await served.client.message(execution_id, text):
                said.append(text)
        state = await served.client.result(execution_id)
    heard = [each.text for each in state.messages if each.role == "user"]
    assert said == [text for text in heard if text in said], "acknowledged and in order"


@pytest.mark.slow
async def test_a_message_by_update_is_refused_where_it_would_not_be_kept(restless: Restless) -> None:
    script = [say("done", delay_seconds=600)]
    async with restless(script) as served:
        execution_id = await served.client.start(AGENT, "Go.")
        await served.endpoint.until(lambda requests: len(requests) == 1)
        handle: Any = served.client.temporal.get_workflow_handle(execution_id)
        await handle.execute_update(MESSAGE_SIGNAL, user_message("heard"))
        for _ in range(63):
            await handle.signal(MESSAGE_SIGNAL, user_message("more"))
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update(MESSAGE_SIGNAL, user_message("too many"))
        await served.client.stop(execution_id)
        state = await served.client.result(execution_id)
    assert "at most 64" in str(refused.value.cause)
    assert [each.text for each in state.messages].count("heard") == 1


@pytest.mark.slow
async def test_an_execution_goes_on_by_itself_before_its_history_is_long(restless: Restless) -> None:
    async with restless(walk(STEPS), events=60) as served:
        execution_id = await served.client.start(AGENT, "Go.")
        await served.client.result(execution_id)
        runs = await chain_of(served.client, execution_id)
    assert len(runs) == 3
    assert all(len(history.events) < 90 for history in runs)


@pytest.mark.slow
async def test_the_state_is_read_while_it_goes_on(restless: Restless) -> None:
    async with restless(walk(STEPS)) as served:
        execution_id = await served.client.start(AGENT, "Go.")
        seen = [state.step_count async for state in served.client.follow(execution_id)]
        client: Holdfast = served.client
        assert (await client.debug(execution_id))["steps"] == STEPS + 1
    assert seen == sorted(seen)
    assert seen[-1] == STEPS + 1
