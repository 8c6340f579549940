"""Stops and limits on a real server: whatever is in flight ends, and the state says why."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

from holdfast import AgentDefinition, ExecutionBudget, tool
from holdfast.client import Holdfast
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.conversation.steps import Outcome
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.wire.contracts import APPROVAL_SIGNAL, MESSAGE_SIGNAL, STOP_SIGNAL
from holdfast.testing.script import Call, Reply, Script, calls, say
from tests.serving import Serve
from tests.workflows.histories import replayed

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition(name="stopper", tools="all")
SLOW: Script = [say("too late", delay_seconds=600)]
CLOSED_SECONDS_MAX = 30.0
"""A generous bound; `python -m bench.stop` measures."""


@tool
async def nap(seconds: float) -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    return "rested"


async def test_a_stop_during_a_model_call_closes_its_connection(serve: Serve) -> None:
    async with serve(SLOW) as served:
        execution_id = await served.client.start(AGENT, "wait")
        await served.endpoint.until(lambda requests: len(requests) == 1)
        asked_at = time.monotonic()
        assert await served.client.stop(execution_id, "enough")
        state = await served.client.result(execution_id)
        await served.endpoint.until(lambda requests: requests[0].disconnected_at is not None)
        closed_at = served.endpoint.requests[0].disconnected_at
    assert closed_at is not None
    assert closed_at - asked_at < CLOSED_SECONDS_MAX
    assert state.status is ExecutionStatus.STOPPED
    assert state.stop_reason is StopReason.USER_REQUESTED
    assert state.stop_signal is not None
    assert (state.stop_signal.message, state.stop_signal.source) == ("enough", "client")
    assert state.step_count == 0


async def test_a_stop_during_tools_keeps_finished_results_and_answers_every_call(serve: Serve) -> None:
    script = [calls(Call("nap", {"seconds": 0}), Call("nap", {"seconds": 60}), Call("nap", {"seconds": 0})), say("-")]
    async with serve(script, [nap]) as served:
        execution_id = await served.client.start(AGENT, "sleep")
        async for state in served.client.follow(execution_id):
            step = state.current_step_or_last
            if step is not None and len(step.tool_executions) == 2:
                await served.client.stop(execution_id)
        final = await served.client.result(execution_id)
    assert final.status is ExecutionStatus.STOPPED
    outcomes = [each.outcome for each in final.last_step_tool_executions]
    assert outcomes == [Outcome.SUCCEEDED, Outcome.CANCELLED, Outcome.SUCCEEDED]
    asked = [call.id for message in final.messages for call in message.tool_calls]
    assert [message.tool_call_id for message in final.messages if message.role == "tool"] == asked
    assert len(served.endpoint.requests) == 1


async def test_a_stop_reaches_the_code_of_an_async_tool(serve: Serve) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    @tool
    async def linger() -> str:
        """Stay until cancelled."""
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "stayed"

    async with serve([calls(Call("linger")), say("-")], [linger]) as served:
        execution_id = await served.client.start(AGENT, "linger")
        assert await asyncio.to_thread(begun.wait, 90)
        await served.client.stop(execution_id)
        assert (await served.client.result(execution_id)).status is ExecutionStatus.STOPPED
        assert await asyncio.to_thread(cancelled.wait, CLOSED_SECONDS_MAX)


async def test_a_stop_after_the_step_lets_the_step_finish(serve: Serve) -> None:
    async with serve([calls(Call("nap", {"seconds": 0.5})), say("-")], [nap]) as served:
        execution_id = await served.client.start(AGENT, "sleep")
        await served.endpoint.until(lambda requests: len(requests) == 1)
        await served.client.stop(execution_id, mode="after_step")
        state = await served.client.result(execution_id)
    assert state.status is ExecutionStatus.STOPPED
    assert state.step_count == 1
    assert state.last_step_tool_executions[0].result == "rested"


@pytest.mark.slow
async def test_a_thousand_stops_are_one_stop(serve: Serve) -> None:
    async with serve(SLOW) as served:
        execution_id = await served.client.start(AGENT, "wait")
        taken = await asyncio.gather(*(served.client.stop(execution_id, f"stop {n}") for n in range(1_000)))
        state = await served.client.result(execution_id)
    assert any(taken)
    assert state.stop_reason is StopReason.USER_REQUESTED
    assert len(state.running.continuation.stop_signals) == 1


async def test_a_stop_before_the_first_step_and_after_the_end_are_both_fine(serve: Serve) -> None:
    async with serve([say("done")]) as served:
        execution_id = await served.client.start(AGENT, "answer")
        state = await served.client.result(execution_id)
        assert not await served.client.stop(execution_id)
        assert await served.client.state(execution_id) == state


async def test_a_cancel_from_the_web_ui_ends_as_stopped_with_a_state(serve: Serve) -> None:
    async with serve(SLOW) as served:
        execution_id = await served.client.start(AGENT, "wait")
        await served.endpoint.until(lambda requests: len(requests) == 1)
        await _handle(served.client, execution_id).cancel()
        state = await served.client.result(execution_id)
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)


async def test_a_stop_signal_with_unusable_input_harms_nothing(serve: Serve) -> None:
    async with serve(SLOW) as served:
        execution_id = await served.client.start(AGENT, "wait")
        await served.endpoint.until(lambda requests: len(requests) == 1)
        handle = _handle(served.client, execution_id)
        await handle.signal(STOP_SIGNAL, {"mode": "sideways"})
        await handle.signal(STOP_SIGNAL, "not even an object")
        assert (await served.client.state(execution_id)).status is ExecutionStatus.IN_PROGRESS
        await handle.signal(STOP_SIGNAL)  # by hand from the Web UI, without input
        state = await served.client.result(execution_id)
    assert state.stop_reason is StopReason.USER_REQUESTED


@pytest.mark.parametrize("name", [STOP_SIGNAL, MESSAGE_SIGNAL, APPROVAL_SIGNAL])
async def test_no_signal_of_whatever_arguments_ends_a_run_as_failed(serve: Serve, name: str) -> None:
    by_hand: list[list[Any]] = [["no", "object"], [0], [{"mode": "sideways"}, None], [[1]], [b"\xff", 2]]
    async with serve(SLOW) as served:
        execution_id = await served.client.start(AGENT, "wait")
        await served.endpoint.until(lambda requests: len(requests) == 1)
        handle = _handle(served.client, execution_id)
        for arguments in by_hand:
            await handle.signal(name, args=arguments)
        assert (await served.client.state(execution_id)).status is ExecutionStatus.IN_PROGRESS
        await handle.signal(STOP_SIGNAL, args=[{"reason": "enough"}, "and more"])
        state = await served.client.result(execution_id)
        await replayed(served.client, execution_id)
    assert state.stop_signal is not None
    assert (state.status, state.stop_signal.message) == (ExecutionStatus.STOPPED, "enough")


async def test_max_seconds_strikes_in_the_middle_of_a_model_call(serve: Serve) -> None:
    async with serve(SLOW) as served:
        state = await served.client.run(AGENT, "wait", budget=ExecutionBudget(max_seconds=4))
        await served.endpoint.until(lambda requests: requests[0].disconnected_at is not None)
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.TIME_LIMIT)


@pytest.mark.slow
async def test_max_seconds_strikes_while_an_endpoint_wants_to_be_left_alone_for_longer(serve: Serve) -> None:
    busy = Reply(status=429, headers={"retry-after": "36000"})
    async with serve([say("too late", failures=(busy,))]) as served:
        state = await served.client.run(AGENT, "wait", budget=ExecutionBudget(max_seconds=4))
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.TIME_LIMIT)
    assert len(served.endpoint.requests) == 1


async def test_a_stop_reaches_a_run_that_waits_for_a_busy_endpoint_and_its_time_limit(serve: Serve) -> None:
    busy = Reply(status=429, headers={"retry-after": "36000"})
    async with serve([say("too late", failures=(busy,))]) as served:
        execution_id = await served.client.start(AGENT, "wait", budget=ExecutionBudget(max_seconds=60))
        await served.endpoint.until(lambda requests: len(requests) == 1 and requests[0].ended_at is not None)
        await served.client.stop(execution_id)
        state = await served.client.result(execution_id)
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)


async def test_spent_tokens_stop_the_run_before_its_tools_start(serve: Serve) -> None:
    script = [calls(Call("nap", {"seconds": 60}), usage=(50, 60)), say("-")]
    async with serve(script, [nap]) as served:
        state = await served.client.run(AGENT, "sleep", budget=ExecutionBudget(max_tokens=100))
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.TOKEN_LIMIT)
    assert [each.outcome for each in state.state.last_step_tool_executions] == [Outcome.CANCELLED]
    assert 0 < served.endpoint.requests[0].body["max_completion_tokens"] < 100, "the question takes its share"


def _handle(client: Holdfast, execution_id: str) -> WorkflowHandle[object, object]:
    return client.temporal.get_workflow_handle(execution_id)
