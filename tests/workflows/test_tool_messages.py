"""Tools read the conversation page by page, the same in-process and on Temporal; no call's input holds it."""

from __future__ import annotations

import pytest

from holdfast import AgentDefinition, AgentState, Message, ToolContext, tool
from holdfast.core.conversation.messages import ToolCall
from holdfast.local import LocalDriver
from holdfast.testing.script import call, say
from holdfast.testing.scripted_model import ScriptedModel
from tests.core.building import Run
from tests.serving import Serve
from tests.workflows.histories import history_of, replayed

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(120)]

AGENT = AgentDefinition(name="clerk", tools="all")


@tool
async def recall(context: ToolContext) -> list[list[str]]:
    """Say what was said."""
    return [[message.role, message.text] async for message in context.messages()]


@tool(local=True, idempotent=True)
async def glance(context: ToolContext) -> int:
    """Look within the workflow task."""
    return len([message async for message in context.messages()])


SCRIPT = [call("recall"), call("recall"), call("glance"), say("done")]


async def test_a_tool_reads_what_the_model_was_sent_and_no_input_has_it(serve: Serve) -> None:
    async with serve(SCRIPT, [recall, glance]) as served:
        result = await served.client.run(AGENT, "remember this")
        id_ = result.state.running.execution_id
        await replayed(served.client, id_)
        events = (await history_of(served.client, id_)).events
    first, second, third = (each for step in result.state.steps for each in step.tool_executions)
    assert first.value == [["user", "remember this"]]
    assert second.value == [["user", "remember this"], ["assistant", ""], ["tool", first.result]]
    assert third.error is not None
    assert third.error.message.endswith("a `local` tool cannot read the conversation; leave out `local`")
    scheduled = (each.activity_task_scheduled_event_attributes for each in events)
    inputs = [each.input.SerializeToString() for each in scheduled if each.activity_type.name == "recall"]
    assert len(inputs) == 2
    assert all(b"remember this" not in each for each in inputs)

    here = await LocalDriver(AGENT, model=ScriptedModel(SCRIPT), tools=(recall,)).execute("remember this")
    assert [each.value for each in here.steps[0].tool_executions + here.steps[1].tool_executions] == [
        first.value,
        second.value,
    ]


async def test_a_step_taken_up_in_its_middle_reads_its_own_conversation(serve: Serve) -> None:
    asked = ToolCall(id="a", name="recall")
    state = Run(tools=["recall"]).begin("remember this").answer("", asked).state
    async with serve([say("done")], [recall]) as served:
        there = (await served.client.run(AGENT, "go on", state=state)).state
        await replayed(served.client, there.running.execution_id)
    driver = LocalDriver(AGENT, model=ScriptedModel([say("hello"), say("done"), say("done")]), tools=(recall,))
    await driver.execute("a stranger's question")
    here, again = await driver.execute("go on", state=state), await driver.execute("go on", state=state)
    for ended in (there, here, again):
        assert ended.steps[0].tool_executions[0].value == [["user", "remember this"]]


async def test_a_long_conversation_comes_in_pages(serve: Serve) -> None:
    said = [Message(role="user", content=f"line {number}") for number in range(450)]
    state = AgentState.empty().with_messages(*said)
    async with serve([call("recall"), say("done")], [recall]) as served:
        result = await served.client.run(AGENT, "and now?", state=state)
    [recalled] = result.state.steps[0].tool_executions
    assert recalled.value == [["user", each] for each in (*(each.text for each in said), "and now?")]
