"""A plan made on a real server, by an agent that the definition names."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.policies import Plan
from holdfast.core.conversation.todos import Todo
from holdfast.testing.script import Call, Reply, calls, say
from tests.capabilities.twin import assert_same_in_process
from tests.serving import Serve
from tests.workflows.histories import replayed

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]

AGENT = AgentDefinition(name="clerk", capabilities=("plan",), plan=Plan(agent="strategist"))
STRATEGIST = AgentDefinition(name="strategist", system_prompt="You think ahead.")


def house(request: dict[str, Any]) -> Reply:
    if "You think ahead." in str(request["messages"][0]):
        return say('{"items": ["look", "tell"]}')
    if "the list is now" in str(request["messages"]):
        return say("done")
    return calls(Call("make_plan", {"task": "Move house."}, "a"))


async def test_a_named_planner_plans_on_the_server_as_in_process(serve: Serve) -> None:
    async with serve(house) as served:
        execution_id = await served.client.start(AGENT, "Go.", subagents=[STRATEGIST])
        state = await served.client.result(execution_id)
        offered = [each["function"]["name"] for each in served.endpoint.requests[0].body["tools"]]
        await replayed(served.client, execution_id)
    assert offered == ["make_plan", "write_todos"], "and no `spawn`: the planner is no subagent of the model's"
    assert (state.status, state.todos) == (ExecutionStatus.COMPLETED, (Todo(text="look"), Todo(text="tell")))
    assert state.steps_used == 3
    await assert_same_in_process(AGENT, house, state, agents=[STRATEGIST])
