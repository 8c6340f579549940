"""What an agent is told of the agents it can call or hand over to: the same in-process and on a real server."""

from __future__ import annotations

import pytest

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.policies import JsonSchemaFormat
from holdfast.core.conversation.steps import ToolExecution
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel, call, say
from tests.capabilities.twin import assert_same_in_process
from tests.serving import Serve

CLERK = AgentDefinition(name="clerk", description="Files\nletters.", capabilities=("todo",))
JUDGE = AgentDefinition(
    name="judge", response_format=JsonSchemaFormat(json_schema={"type": "object", "properties": {"fair": {}}})
)
LEAD = AgentDefinition(
    name="lead", capabilities=("describe_agents",), subagents=("clerk", "judge"), handoffs=("clerk",)
)
ALL = "- clerk (spawn or handoff): Files letters.\n- judge (spawn): no description"


async def described(by: AgentDefinition = LEAD, **arguments: object) -> ToolExecution:
    model = ScriptedModel([call("describe_agents", **arguments), say("done")])
    state = await LocalDriver(by, model=model, agents=(CLERK, JUDGE)).execute("Go.")
    return state.steps[0].tool_executions[0]


async def test_all_agents_are_listed_and_one_is_described_in_full() -> None:
    assert (await described()).answer.text == ALL
    assert (await described(agent="judge")).answer.text.splitlines() == [
        "judge (spawn): no description",
        "tools: none",
        "takes: a text, the task",
        'answers: JSON, of this schema: {"type":"object","properties":{"fair":{}}}',
    ]
    assert "capabilities: todo" in (await described(agent="clerk")).answer.text


async def test_an_agent_that_cannot_be_called_is_an_error_with_the_nearest() -> None:
    execution = await described(agent="clark")
    assert execution.error is not None
    assert "'clark'" in execution.error.message
    assert "clerk" in execution.error.message
    assert (await described(whom="clerk")).error is not None


async def test_an_agent_without_others_is_told_so() -> None:
    alone = AgentDefinition(name="alone", capabilities=("describe_agents",))
    assert (await described(alone)).answer.text == "there are no agents that you can call"


@pytest.mark.temporal
async def test_on_temporal_it_is_the_same(serve: Serve) -> None:
    script = [call("describe_agents"), call("describe_agents", agent="judge"), say("done")]
    async with serve(script) as served:
        result = await served.client.run(LEAD, "Go.", subagents=(CLERK, JUDGE))
    assert result.state.steps[0].tool_executions[0].answer.text == ALL
    await assert_same_in_process(LEAD, script, result.state, agents=(CLERK, JUDGE))
