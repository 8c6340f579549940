"""What tools may know and report: the same in-process and on Temporal, through crashes of the call and by watchers."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import Any

import pytest
from pydantic import JsonValue
from temporalio import activity
from temporalio.worker import Worker

from holdfast import AgentDefinition, AgentState, ExecutionBudget, ToolContext, remote_tool, tool
from holdfast.client import ToolProgressed
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.bounds import SEGMENT_BYTES_MIN
from holdfast.local import LocalDriver
from holdfast.testing.script import Call, Reply, calls, say, turn_number
from holdfast.testing.scripted_model import ScriptedModel
from tests.serving import Serve
from tests.workflows.histories import history_of, replayed, written

pytestmark = pytest.mark.temporal

HELPER = AgentDefinition(name="helper", tools=("whoami",))
LEAD = AgentDefinition.model_validate(
    {"name": "lead", "tools": "all", "subagents": ["helper"], "metadata": {"desk": 4}}
)
BUDGET = ExecutionBudget(max_steps=5, max_tokens=100_000, max_seconds=600)


def script(request: dict[str, Any]) -> Reply:
    """Ask each tool and a subagent, then the first tool once more."""
    turn, helper = turn_number(request), "look" in str(request["messages"][-1]["content"])
    if helper and not turn:
        return calls(Call("whoami", {}))
    if turn == 0:
        return calls(Call("whoami", {}), Call("quick", {}), Call("spawn", {"agent": "helper", "task": "look"}))
    if turn == 1 and "spawn" in str(request["messages"]):
        return calls(Call("whoami", {}))
    return say("done")


def described(context: ToolContext) -> dict[str, JsonValue]:
    """What does not differ from run to run."""
    left = context.budget_left
    return {
        "agent": context.agent,
        "is_child": context.parent_agent_id is not None,
        "step": context.step,
        "call": context.call_id,
        "attempt": context.attempt,
        "left": [left.steps, left.tokens, left.cost, left.seconds is not None],
        "ends": isinstance(context.deadline, datetime) and context.deadline.tzinfo is not None,
        "metadata": dict(context.metadata),
    }


@tool
async def whoami(context: ToolContext) -> dict[str, JsonValue]:
    """Say what the call knows."""
    context.set_metadata(asked_in=context.step, asked_by=context.agent, desk=None)
    return described(context)


@tool(local=True, idempotent=True)
def quick(context: ToolContext) -> dict[str, JsonValue]:
    """Say it within the workflow task."""
    context.progress("no heartbeats here")
    context.set_metadata(quick=True)
    return described(context)


def seen(state: AgentState) -> list[JsonValue]:
    return [json.loads(each.text) for each in state.messages if each.role == "tool" and each.text.startswith("{")]


async def test_tools_know_the_same_and_set_the_same_metadata_in_both_drivers(serve: Serve) -> None:
    driver = LocalDriver(LEAD, model=ScriptedModel(script), tools=[whoami, quick], agents=[HELPER])
    local = await driver.execute("help", budget=BUDGET, metadata={"customer": "c-17"})
    async with serve(script, offer=Toolset(tools=(whoami, quick))) as served:
        execution_id = await served.client.start(
            LEAD, "help", budget=BUDGET, subagents=[HELPER], metadata={"customer": "c-17"}
        )
        durable = await served.client.result(execution_id)
        await replayed(served.client, execution_id)
    first, fast, again = seen(local)
    assert seen(durable) == [first, fast, again]
    assert isinstance(first, dict)
    assert isinstance(again, dict)
    assert first["metadata"] == {"agent": "lead", "customer": "c-17", "desk": 4}
    assert again["metadata"] == {
        "agent": "lead",
        "customer": "c-17",
        "quick": True,
        "asked_in": 1,
        "asked_by": "lead",
    }
    assert (first["step"], again["step"], first["ends"], first["is_child"]) == (1, 2, True, False)
    assert local.metadata == durable.metadata
    assert durable.metadata["asked_in"] == 2


async def test_what_a_call_knows_travels_only_with_tools_that_ask_for_it(serve: Serve) -> None:
    long = "x" * 2 * SEGMENT_BYTES_MIN

    @tool
    def plain() -> str:
        """Know nothing."""
        return "ok"

    @tool
    def note(context: ToolContext) -> str:
        """Return how much is known."""
        return f"{len(str(context.metadata['note']))} in step {context.step}"

    async with serve([calls(Call("plain", {}), Call("note", {})), say("done")], offer=Toolset((plain, note))) as served:
        agent = AgentDefinition(name="sizer", tools="all", metadata={"note": long})
        execution_id = await served.client.start(agent, "go")
        state = await served.client.result(execution_id)
        events = (await history_of(served.client, execution_id)).events
    assert [each.text for each in state.messages if each.role == "tool"] == ["ok", f"{len(long)} in step 1"]
    scheduled = [event for event in events if event.HasField("activity_task_scheduled_event_attributes")]
    inputs = {each.activity_task_scheduled_event_attributes.activity_type.name: each for each in scheduled}
    payloads = {
        name: len(each.activity_task_scheduled_event_attributes.input.payloads) for name, each in inputs.items()
    }
    assert (payloads["plain"], payloads["note"]) == (1, 3), "long metadata stand apart, so that they are stored once"
    assert long.encode() not in written([inputs["plain"], inputs["note"]])


async def test_the_metadata_of_an_attempt_that_failed_are_dropped(serve: Serve) -> None:
    @tool(retry_on=(ConnectionError,))
    def flaky(context: ToolContext) -> str:
        """Fail once."""
        context.set_metadata(**{f"attempt_{context.attempt}": True})
        if context.attempt == 1:
            raise ConnectionError("again")
        return "ok"

    asks = [calls(Call("flaky", {})), say("done")]
    agent = AgentDefinition(name="stubborn", tools="all")
    local = await LocalDriver(agent, model=ScriptedModel(asks), tools=[flaky]).execute("go")
    async with serve(asks, offer=Toolset((flaky,))) as served:
        durable = await served.client.result(await served.client.start(agent, "go"))
    for state in (local, durable):
        assert "attempt_2" in state.metadata
        assert "attempt_1" not in state.metadata


async def test_who_watches_sees_a_tools_progress_while_it_runs_and_no_history_has_it(serve: Serve) -> None:
    go_on = asyncio.Event()

    @tool
    async def slow(context: ToolContext) -> str:
        """Take as long as the test does."""
        context.progress("page 2 of 5", fraction=0.4)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(go_on.wait(), loop))
        return "ok"

    loop = asyncio.get_running_loop()
    async with serve([calls(Call("slow", {})), say("done")], offer=Toolset((slow,))) as served:
        execution_id = await served.client.start(AgentDefinition(name="patient", tools="all"), "go")
        reports: list[ToolProgressed] = []
        async for each in served.client.watch(execution_id):
            if isinstance(each, ToolProgressed):
                reports.append(each)
                go_on.set()
        history = written((await history_of(served.client, execution_id)).events)
    assert [(each.tool, each.step_number, each.attempt, each.line) for each in reports] == [
        ("slow", 1, 1, "40% page 2 of 5")
    ]
    assert b"page 2 of 5" not in history


async def test_a_worker_in_another_language_sets_metadata_with_its_reply(serve: Serve) -> None:
    far = remote_tool(
        name="far", description="Elsewhere.", parameters={"type": "object", "properties": {}}, task_queue="far-context"
    )

    @activity.defn(name="far")
    async def serve_far(*arguments: Any) -> object:  # noqa: ANN401  # as another SDK would
        return {"kind": "holdfast.reply", "text": str(len(arguments)), "metadata": {"place": "far"}}

    async with serve([calls(Call("far", {})), say("done")], offer=Toolset((far,))) as served:
        worker = Worker(served.client.temporal, task_queue="far-context", activities=[serve_far])
        async with worker:
            state = await served.client.result(
                await served.client.start(AgentDefinition(name="caller", tools="all"), "go")
            )
    assert state.metadata["place"] == "far"
    assert [each.text for each in state.messages if each.role == "tool"] == ["1"], "the arguments alone"
