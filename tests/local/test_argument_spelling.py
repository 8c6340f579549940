"""What a model wrote comes back to it byte for byte, through a real endpoint and the in-process driver."""

from __future__ import annotations

import pytest

from holdfast import AgentDefinition, tool
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.policies import ApprovalRule
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.verdicts import Verdict
from holdfast.local import LocalDriver
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Call, calls, say

AGENT = AgentDefinition(name="clerk", tools="all", approvals=(ApprovalRule(tools=("look",)),))
PRETTY = '{\n  "place": "a b",\n  "depth": 1e1\n}'
SPACED = '{"place": "\\u00fc", "depth": 2}'
COMPACT = '{"place":"c","depth":3}'
LONG_ID = "call_" + "i" * 59


@tool
def look(place: str, depth: float) -> str:
    """Look at a place."""
    return f"{place} at {depth}"


@pytest.mark.parametrize("stream", [True, False])
async def test_each_request_begins_with_the_very_bytes_of_the_one_before(*, stream: bool) -> None:
    turns = [
        calls(Call("look", PRETTY, LONG_ID), Call("look", COMPACT, "x")),
        calls(Call("look", SPACED)),
        say("done"),
    ]
    definition = AgentDefinition(name="clerk", tools="all", llm=LLM(stream=stream))
    async with FakeOpenAI(turns) as endpoint:
        model = OpenAIChat(ProviderSettings(base_url=endpoint.base_url, api_key="k", model="scripted"))
        state = await LocalDriver(definition, model=model, tools=[look]).execute("Go.")
        await model.close()
    sent = [call for each in endpoint.requests[-1].body["messages"] for call in each.get("tool_calls", ())]
    assert [each["function"]["arguments"] for each in sent] == [PRETTY, COMPACT, SPACED]
    assert [each["id"] for each in sent] == [LONG_ID, "x", "call_1_0"]
    first, second, third = (request.raw for request in endpoint.requests)
    assert second.startswith(_open(first))
    assert third.startswith(_open(second))
    assert [each.result for step in state.steps for each in step.tool_executions] == [
        "a b at 10.0",
        "c at 3.0",
        "ü at 2.0",
    ]


def _open(raw: bytes) -> bytes:
    """Return a request's beginning, up to the end of its last message."""
    start = raw.index(b'"messages":')
    return raw[: raw.index(b"}]", start)] if b'"tools"' not in raw[:start] else raw


async def test_arguments_that_a_person_edits_run_and_the_model_sees_what_it_wrote() -> None:
    async def edit(_: ToolCall) -> Verdict:
        return Verdict(decision="edit", arguments={"place": "elsewhere", "depth": 0})

    async with FakeOpenAI([calls(Call("look", PRETTY)), say("done")]) as endpoint:
        model = OpenAIChat(ProviderSettings(base_url=endpoint.base_url, api_key="k", model="scripted"))
        state = await LocalDriver(AGENT, model=model, tools=[look], approver=edit).execute("Go.")
        await model.close()
    (call,) = endpoint.requests[1].body["messages"][1]["tool_calls"]
    assert call["function"]["arguments"] == PRETTY
    assert state.last_tool_execution is not None
    assert state.last_tool_execution.result == "elsewhere at 0.0"
