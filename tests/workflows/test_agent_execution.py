"""A run on a real Temporal server, with a real HTTP endpoint and the real openai client."""

from __future__ import annotations

import pytest

from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.tools.tools import tool
from holdfast.testing.script import Call, calls, say
from tests.serving import Serve

pytestmark = pytest.mark.temporal


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_a_run_calls_its_tools_and_answers(serve: Serve) -> None:
    script = [calls(Call("add", {"a": 1, "b": 2}), Call("add", {"a": 3, "b": 4})), say("3 and 7")]
    async with serve(script, [add]) as served:
        state = await served.client.run(AgentDefinition(name="calculator", tools="all"), "what is 1+2, what is 3+4?")
    assert state.status is ExecutionStatus.COMPLETED
    assert state.stop_reason is StopReason.COMPLETED
    assert state.output == "3 and 7"
    assert [message.content for message in state.messages if message.role == "tool"] == ["3", "7"]
