"""A run's history leads a fresh worker to the same commands: what makes every recovery possible."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from holdfast import AgentDefinition, ExecutionBudget, tool
from holdfast.core.base.errors import ExecutionFailed
from holdfast.testing.script import Call, Reply, call, calls, say
from tests.serving import Serve, Served
from tests.workflows.histories import replayed

pytestmark = pytest.mark.temporal

AGENT = AgentDefinition(name="replayed", tools="all")


@tool
async def nap(seconds: float) -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    return "rested"


async def to_the_end(served: Served, execution_id: str) -> None:
    await served.client.result(execution_id)


async def stopped_in_a_tool(served: Served, execution_id: str) -> None:
    async for state in served.client.follow(execution_id):
        step = state.current_step_or_last
        if step is not None and step.requested_tool_calls:
            await served.client.stop(execution_id)


async def cancelled_in_a_model_call(served: Served, execution_id: str) -> None:
    await served.endpoint.until(lambda requests: len(requests) == 1)
    await served.client.temporal.get_workflow_handle(execution_id).cancel()
    await served.client.result(execution_id)


async def failed(served: Served, execution_id: str) -> None:
    with pytest.raises(ExecutionFailed):
        await served.client.result(execution_id)


@pytest.mark.parametrize(
    ("script", "budget", "happens"),
    [
        ([calls(Call("nap", {"seconds": 0.1}), Call("nap", {"seconds": 0})), say("done")], {}, to_the_end),
        ([call("nap", seconds=0), call("none"), say("done")], {"max_seconds": 60}, to_the_end),
        ([call("nap", seconds=0)], {"max_steps": 1}, to_the_end),
        ([say("too late", delay_seconds=600)], {"max_seconds": 0.3}, to_the_end),
        ([calls(Call("nap", {"seconds": 60}), Call("nap", {"seconds": 0}))], {}, stopped_in_a_tool),
        ([say("too late", delay_seconds=600)], {}, cancelled_in_a_model_call),
        ([Reply(status=401)], {}, failed),
    ],
    ids=["parallel tools", "unknown tool", "steps limit", "time limit", "stop", "cancel", "failure"],
)
async def test_the_history_of_a_run_replays(
    serve: Serve, script: Sequence[Reply], budget: dict[str, float], happens: Callable[[Served, str], Awaitable[None]]
) -> None:
    async with serve(script, [nap]) as served:
        limits = ExecutionBudget.model_validate(budget)
        execution_id = await served.client.start(AGENT, "rest", budget=limits)
        await happens(served, execution_id)
        await replayed(served.client, execution_id)
