"""Typed answers and tools in words through the other APIs: each request has what its API takes."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.policies import JsonSchemaFormat
from holdfast.core.conversation.messages import Message, user_message
from holdfast.models.prompted.call_blocks import call_blocks, result_block
from holdfast.models.prompted.model import PromptedModel
from holdfast.models.routed_model import RoutedModel
from holdfast.models.routes import Capability, Route
from holdfast.testing import ScriptedModel, say
from holdfast.testing.anthropic_server import FakeAnthropic
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.responses_server import FakeResponses
from holdfast.testing.script import Call, Reply, calls
from tests.activities.asking import REQUEST, schema
from tests.models.pydantic_ai_asking import ANTHROPIC, CHAT, RESPONSES, Kind, asking

LOOK = '<tool_call>\n{"name": "look", "arguments": {"at": "1"}}\n</tool_call>'
FORM = JsonSchemaFormat(json_schema={"type": "object", "properties": {"city": {"type": "string"}}})
ASKED = replace(REQUEST, llm=LLM(model="route"), tools=(schema("look"),))
APIS = [("anthropic", FakeAnthropic), ("openai_responses", FakeResponses)]


@asynccontextmanager
async def serving(
    api: str, server: type[FakeOpenAI], script: Sequence[Reply], can: tuple[Capability, ...]
) -> AsyncGenerator[tuple[FakeOpenAI, RoutedModel]]:
    async with server(script) as endpoint:
        route = Route(api=api, model="m", base_url=endpoint.base_url, capabilities=can)
        model = RoutedModel(ScriptedModel([]), {"route": route}, {})
        try:
            yield endpoint, model
        finally:
            await model.close()


@pytest.mark.parametrize(("api", "server"), APIS)
async def test_calls_in_words_go_back_in_words_behind_the_models_own_reasoning(
    api: str, server: type[FakeOpenAI]
) -> None:
    script = [say(f"A look.\n{LOOK}", reasoning="a look first"), say("Seen.")]
    async with serving(api, server, script, ("stream",)) as (endpoint, model):
        first = await model(ASKED)
        calling = tuple(call.model_copy(update={"id": "c1"}) for call in first.tool_calls)
        answered = Message(role="assistant", content=first.text, tool_calls=calling, items=first.items)
        seen = Message(role="tool", tool_call_id="c1", content="seen")
        second = await model(replace(ASKED, messages=(user_message("Look."), answered, seen)))
        bodies = [each.body for each in endpoint.requests]
    assert (first.text, [each.name for each in first.tool_calls], second.text) == ("A look.", ["look"], "Seen.")
    assert not any("tools" in each for each in bodies)
    sent = str(bodies[1])
    assert repr(f"A look.\n{call_blocks(calling)}")[1:-1] in sent
    assert repr(result_block("look", "seen"))[1:-1] in sent
    assert first.items


@pytest.mark.parametrize(("api", "server"), APIS)
async def test_a_function_takes_the_answer(api: str, server: type[FakeOpenAI]) -> None:
    script = [calls(Call("final_answer", {"city": "Rome"}))]
    async with serving(api, server, script, ("stream", "tools", "parallel_tools")) as (endpoint, model):
        response = await model(replace(ASKED, response_format=FORM))
        [body] = [each.body for each in endpoint.requests]
    assert (response.text, response.tool_calls) == ('{"city": "Rome"}', ())
    assert [each["name"] for each in body["tools"]] == ["look", "final_answer"]
    assert body["tool_choice"] in ("required", {"type": "any"})


@pytest.mark.parametrize("kind", [CHAT, RESPONSES, ANTHROPIC], ids=lambda kind: kind.name)
async def test_models_of_pydantic_ai_are_asked_alike(kind: Kind) -> None:
    async with asking(kind, say(f"A look.\n{LOOK}")) as (endpoint, model):
        response = await PromptedModel(model, ["stream"])(replace(ASKED, llm=LLM()))
        assert "tools" not in endpoint.requests[0].body
    assert (response.text, [each.name for each in response.tool_calls]) == ("A look.", ["look"])
    async with asking(kind, calls(Call("final_answer", {"city": "Rome"}))) as (_, model):
        response = await PromptedModel(model, ["stream", "tools"])(replace(ASKED, llm=LLM(), response_format=FORM))
    assert (json.loads(response.text), response.tool_calls) == ({"city": "Rome"}, ())
