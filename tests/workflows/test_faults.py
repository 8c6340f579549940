"""What must not wedge a run: cancels at odd moments, and starts by hand that are no runs of ours."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import WorkflowFailureError

from holdfast import AgentDefinition, ExecutionStatus, StopReason, tool
from holdfast.client import Holdfast, Settings
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import ExecutionFailed
from holdfast.core.wire.contracts import AGENT_EXECUTION, ExecutionInput
from holdfast.testing.script import Reply, call, say, turn_number
from tests.serving import Serve, served
from tests.workflows.histories import replayed

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition(name="odd", tools="all")


async def test_a_cancel_with_an_endless_reason_stops_the_run(serve: Serve) -> None:
    async with serve([say("too late", delay_seconds=600)]) as served:
        execution_id = await served.client.start(AGENT, "wait")
        await served.endpoint.until(lambda requests: len(requests) == 1)
        await served.client.temporal.get_workflow_handle(execution_id).cancel(reason="why " * 1_000)
        state = await served.client.result(execution_id)
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)


async def test_a_cancel_before_any_worker_is_there_stops_the_run_with_a_state(
    settings: Settings, tmp_path: Path
) -> None:
    client = await Holdfast.connect(settings)
    execution_id = await client.start(AGENT, "wait")
    await client.temporal.get_workflow_handle(execution_id).cancel()
    async with served(settings, tmp_path / "ledger.jsonl", [say("too late", delay_seconds=600)], Toolset()):
        state = await client.result(execution_id)
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)


async def test_a_run_whose_id_is_no_uuid_fails_and_says_so(serve: Serve) -> None:
    start = ExecutionInput(agent_id=str(uuid4()), definition=AGENT, question="?", budget=ExecutionBudget())
    async with serve([say("hello")]) as served:
        queue = served.client.settings.task_queue
        by_hand = served.client.temporal.execute_workflow(
            AGENT_EXECUTION, start, id=f"by-hand-{uuid4()}", task_queue=queue
        )
        with pytest.raises(WorkflowFailureError) as failed:
            await by_hand
    assert "UUID" in str(failed.value.cause)


async def test_a_time_limit_that_passed_without_a_worker_stops_the_run_before_any_model_call(
    settings: Settings, tmp_path: Path
) -> None:
    client = await Holdfast.connect(settings)
    past = ExecutionBudget(max_seconds=0.01)
    execution_id = await client.start(AGENT, "too late", budget=past)
    async with served(settings, tmp_path / "ledger.jsonl", [say("hello")], Toolset()) as late:
        state = await client.result(execution_id)
        assert late.endpoint.requests == ()
        await replayed(client, execution_id)
    assert (state.status, state.stop_reason, state.step_count) == (ExecutionStatus.STOPPED, StopReason.TIME_LIMIT, 0)


@tool(attempts_max=1)
async def block(seconds: float) -> str:
    """Do what an async tool must not do."""
    time.sleep(seconds)  # noqa: ASYNC251  # the fault
    return "blocked"


async def test_an_async_tool_that_blocks_harms_no_neighbour(serve: Serve) -> None:
    async with serve(blocking_or_slow, [block]) as served:
        blocked = asyncio.create_task(served.client.run(AGENT, "block"))
        neighbour = await served.client.run(AGENT, "slow")
        state = await blocked
    assert neighbour.status is state.status is ExecutionStatus.COMPLETED
    assert state.state.last_tool_execution is not None
    assert state.state.last_tool_execution.result == "blocked"
    assert len(served.endpoint.requests) == 3, "no call was taken for lost and made again"


def blocking_or_slow(request: dict[str, Any]) -> Reply:
    """One run blocks the loop of async tools for longer than the heartbeat timeout, the other waits for its model."""
    if request["messages"][0]["content"] == "slow":
        return say("done", delay_seconds=3)
    return call("block", seconds=4) if turn_number(request) == 0 else say("done")


async def test_an_agent_with_an_unknown_tool_fails_before_any_model_call(serve: Serve) -> None:
    agent = AgentDefinition(name="odd", tools=("hammer",))
    async with serve([say("hello")]) as served:
        with pytest.raises(ExecutionFailed, match="UnknownTool: agent 'odd' names the tool 'hammer'") as failed:
            await served.client.run(agent, "?")
        assert served.endpoint.requests == ()
    assert failed.value.state is not None
    assert failed.value.state["execution"]["status"] == "failed"


@pytest.mark.slow
async def test_a_limit_that_strikes_around_the_first_task_replays_whatever_is_asked_meanwhile(
    settings: Settings, tmp_path: Path
) -> None:
    """A query in the first task moves that task's time in a replay; no decision may hang on it."""
    client = await Holdfast.connect(settings)
    limits = [ExecutionBudget(max_seconds=0.6 + number / 100) for number in range(80)]
    started = [await client.start(AGENT, "soon", budget=limit) for limit in limits]
    asked = [asyncio.create_task(client.debug(execution_id)) for execution_id in started]
    await asyncio.sleep(0.5)  # the questions wait at the server for the worker, whose first task brings both
    async with served(settings, tmp_path / "ledger.jsonl", [say("hello", delay_seconds=5)], Toolset()):
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert any(isinstance(each, dict) for each in answers), "a busy machine leaves some without an answer, not all"
        for execution_id in started:
            assert (await client.result(execution_id)).stop_reason is StopReason.TIME_LIMIT
            await replayed(client, execution_id)
