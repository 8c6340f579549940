"""A definition's options over the real client: what goes out, and what an API that does not know them says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.core.agent.definition import LLM
from holdfast.core.base.frozen import replace as changed
from holdfast.core.tools.tool_traits import ToolSchema
from holdfast.models.model_apis import ANTHROPIC, OPENAI, OPENAI_RESPONSES
from holdfast.models.openai_chat.model import OpenAIChat
from holdfast.models.options import options_problem
from holdfast.models.strict_tools import LEVELS_MAX, can_be_strict
from holdfast.testing.openai_wire_format import request_body
from holdfast.testing.script import say
from tests.activities.asking import asking, request, schema
from tests.core.test_model_options import EVERY

CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}


async def body_of(**changes: object) -> dict[str, Any]:
    """Return the request's body as the endpoint saw it, which refuses what OpenAI would."""
    async with asking(say("x")) as (endpoint, model):
        await model(request(**changes))
        return endpoint.requests[0].body


async def test_every_option_goes_out() -> None:
    body = await body_of(llm=EVERY, tools=(ToolSchema(name="add", description="Add.", parameters=CLOSED),))
    assert {name: value for name, value in body.items() if name not in ("messages", "tools", "stream_options")} == {
        "model": "m",
        "stream": True,
        "temperature": 0.5,
        "top_p": 0.9,
        "reasoning_effort": "low",
        "verbosity": "high",
        "stop": ["END"],
        "seed": 7,
        "tool_choice": {"type": "function", "function": {"name": "add"}},
        "parallel_tool_calls": False,
        "service_tier": "flex",
        "prompt_cache_key": "clerk",
        "metadata": {"team": "shop"},
    }
    assert body["tools"][0]["function"]["strict"] is True


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
async def test_a_choice_that_names_no_tool_goes_out_as_a_word(choice: str) -> None:
    body = await body_of(llm=LLM(tool_choice=choice), tools=(schema("add"),))
    assert body["tool_choice"] == choice


async def test_what_is_about_tools_is_not_sent_without_any() -> None:
    body = await body_of(llm=LLM(tool_choice="required", parallel_tool_calls=True, strict=True))
    assert set(body) == {"model", "messages", "stream", "stream_options"}


async def test_a_script_sees_the_body_that_goes_out() -> None:
    asked = request(llm=EVERY, tools=(schema("add"),))
    assert request_body(asked, "m") == await body_of(llm=EVERY, tools=(schema("add"),))


async def test_tools_that_cannot_be_strict_are_offered_without() -> None:
    tools = (schema("loose"), ToolSchema(name="add", description="Add.", parameters=CLOSED))
    body = await body_of(llm=LLM(strict=True), tools=tools)
    assert [each["function"].get("strict") for each in body["tools"]] == [None, True]


@pytest.mark.parametrize(
    ("schema_", "strict"),
    [
        (CLOSED, True),
        ({"type": "object", "properties": {}, "required": [], "additionalProperties": False}, True),
        ({**CLOSED, "required": []}, False),
        ({**CLOSED, "additionalProperties": True}, False),
        ({"type": "array", "items": CLOSED}, False),
        ({**CLOSED, "properties": {"a": {"type": "integer", "default": 1}}}, False),
        ({**CLOSED, "properties": {"a": {"type": "object"}}}, False),
        ({**CLOSED, "properties": {"a": {"anyOf": [CLOSED, {"type": "null"}]}}}, True),
        ({**CLOSED, "properties": {"a": {"oneOf": [CLOSED]}}}, False),
        ({**CLOSED, "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": CLOSED}}, True),
        ({**CLOSED, "properties": {"a": {"$ref": "#/$defs/b", "title": "A"}}, "$defs": {"b": CLOSED}}, False),
        ({**CLOSED, "properties": {"a": True}}, False),
        ({**CLOSED, "required": [["a"]]}, False),
    ],
)
def test_which_schemas_can_be_strict(schema_: dict[str, object], *, strict: bool) -> None:
    assert can_be_strict(schema_) is strict


def test_a_schema_that_is_too_deep_cannot_be_strict() -> None:
    deep: dict[str, object] = {"type": "string"}
    for _ in range(LEVELS_MAX + 1):
        deep = {**CLOSED, "properties": {"a": deep}}
    assert not can_be_strict(deep)


def test_chat_completions_know_every_option_but_one() -> None:
    assert OpenAIChat().problem(changed(EVERY, background=None)) == ""
    assert "does not know llm.background" in OpenAIChat().problem(EVERY)


def test_an_api_names_the_options_that_it_does_not_know() -> None:
    api = replace(OPENAI, title="the other API", options=frozenset({"temperature", "stop"}))
    assert options_problem(LLM(temperature=0.1, stop=("x",)), api) == ""
    text = "the other API does not know llm.seed, llm.extra (it knows: temperature, stop); leave them out"
    assert options_problem(LLM(temperature=0.1, seed=1, extra={"user": "x"}), api).startswith(text)


def test_an_api_names_those_that_know_an_option_which_it_does_not() -> None:
    either = "; leave it out, or use a model of the API"
    assert options_problem(LLM(background=True), OPENAI).endswith(f"{either} openai_responses")
    assert options_problem(LLM(seed=1), OPENAI_RESPONSES).endswith(f"{either} openai or pydantic_ai")
    assert options_problem(LLM(background=True, seed=1), ANTHROPIC).endswith("; leave them out"), "no API knows both"
