"""An answer in a schema from models that lack the form: by JSON mode, by a function call, or asked for in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import LLM, Agent, tool
from holdfast.core.agent.answer_types import format_of
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.model import AnswerPart, ModelRequest
from holdfast.core.agent.policies import JsonObjectFormat, JsonSchemaFormat
from holdfast.core.agent.token_bounds import request_tokens
from holdfast.core.base import frozen
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.conversation.provider_items import ProviderItem
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.core.tools.tool_traits import ToolSchema
from holdfast.core.tools.tools import AnyTool
from holdfast.local import LocalDriver
from holdfast.models import FunctionModel
from holdfast.models.anthropic.request_body import request_body
from holdfast.models.openai_chat.request_options import wire_tools
from holdfast.models.prompted.answer_call import ANSWER_TOOL
from holdfast.models.prompted.answer_modes import AnswerMode, answer_mode, asked_by
from holdfast.models.prompted.answer_prompt import JSON_INSTRUCTION, SCHEMA_INSTRUCTION, unfenced
from holdfast.models.prompted.model import PromptedModel
from holdfast.models.routes import Capability
from holdfast.testing import assert_completed, assert_every_call_answered
from holdfast.testing.script import Call, Reply, call, calls, say
from tests.activities.asking import REQUEST, schema
from tests.models.limited_endpoint import ROUTE, limited


class Town(BaseModel):
    """What is asked for."""

    city: str
    people: int


FORM = format_of(Town)
ROME = '{"city": "Rome", "people": 3}'
LLM_OF_ROUTE = LLM(model=ROUTE)
ASKED = replace(REQUEST, llm=LLM_OF_ROUTE, response_format=FORM)
TEMPLATE_TOKENS = 10
"""What a chat template puts around the prompt, and around the question."""
WORDS: tuple[Capability, ...] = ("stream",)
TOOLS: tuple[Capability, ...] = ("stream", "tools")
OBJECTS: tuple[Capability, ...] = ("stream", "json_object")


@tool
def look(city: str) -> str:
    """Look a city up."""
    return f"{city} has 3 people"


def agent(*tools: AnyTool) -> Agent[Town]:
    return Agent(name="clerk", model=ROUTE, answers=Town, prompt="Be brief.", tools=tools)


def system(body: Mapping[str, Any]) -> str:
    prompts: list[str] = [each["content"] for each in body["messages"] if each["role"] == "system"]
    assert len(prompts) == 1
    return prompts[0]


@pytest.mark.parametrize(
    ("can", "tools", "mode"),
    [
        (("json_schema", "json_object", "tools"), ["look"], AnswerMode.NATIVE),
        (("json_schema", "json_object", "tools"), [], AnswerMode.NATIVE),
        (("json_object", "tools"), [], AnswerMode.OBJECT),
        (("json_object", "tools"), ["look"], AnswerMode.CALL),
        (("tools",), [], AnswerMode.CALL),
        (("tools",), ["look"], AnswerMode.CALL),
        (("json_object",), [], AnswerMode.OBJECT),
        (("json_object",), ["look"], AnswerMode.PROMPT),
        (("json_schema",), ["look"], AnswerMode.PROMPT),
        ((), [], AnswerMode.PROMPT),
    ],
)
def test_the_best_mode_is_chosen_by_what_the_model_can_do(
    can: tuple[Capability, ...], tools: list[str], mode: AnswerMode
) -> None:
    assert answer_mode(replace(ASKED, tools=tuple(map(schema, tools))), can) is mode


def test_what_no_function_can_take_is_asked_for_in_words() -> None:
    numbers = JsonSchemaFormat(json_schema={"type": "array", "items": {"type": "integer"}})
    assert answer_mode(replace(ASKED, response_format=numbers), ["tools", "json_object"]) is AnswerMode.PROMPT
    whole = replace(ASKED, response_format=JsonObjectFormat())
    assert answer_mode(whole, ["tools"]) is AnswerMode.PROMPT
    assert answer_mode(whole, ["tools", "json_object"]) is AnswerMode.NATIVE
    assert asked_by(AnswerMode.PROMPT, whole).system_prompt == f"Be brief.\n\n{JSON_INSTRUCTION}"


async def test_a_model_with_json_alone_is_given_the_schema_in_its_prompt() -> None:
    async with limited([say(ROME)], *OBJECTS) as (endpoint, model):
        state = await LocalDriver(agent(), model=model).execute("Which?")
        [body] = [each.body for each in endpoint.requests]
    assert_completed(state, answer=ROME)
    assert body["response_format"] == {"type": "json_object"}
    assert system(body).startswith(f"Be brief.\n\n{SCHEMA_INSTRUCTION}\n{{")
    assert json.loads(system(body).rpartition("\n")[2]) == FORM.json_schema


async def test_a_model_with_words_alone_is_asked_in_words_and_again_with_what_is_wrong() -> None:
    fenced = f"```json\n{ROME}\n```"
    async with limited([say("Rome, of course."), say('{"city": "Rome"}'), say(fenced)], *WORDS) as (endpoint, model):
        state = await LocalDriver(agent(), model=model).execute("Which?")
        bodies = [each.body for each in endpoint.requests]
    assert_completed(state, answer=ROME)
    assert len({system(each) for each in bodies}) == 1
    assert "not usable JSON" in bodies[1]["messages"][-1]["content"]
    assert "'people' is a required property" in bodies[2]["messages"][-1]["content"]
    assert not any("response_format" in each for each in bodies)


async def test_answers_in_words_are_asked_for_only_so_often() -> None:
    async with limited([say("no")] * 5, *WORDS) as (endpoint, model):
        state = await LocalDriver(agent(), model=model).execute("Which?")
        assert len(endpoint.requests) == 3
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.RETRY_LIMIT)


async def test_a_function_takes_the_answer_which_no_history_shows_as_a_call() -> None:
    async with limited([calls(Call(ANSWER_TOOL, ROME), text="Here it is:")], *TOOLS) as (endpoint, model):
        state = await LocalDriver(agent(), model=model).execute("Which?")
        [body] = [each.body for each in endpoint.requests]
    assert_completed(state, answer=ROME)
    assert [each["function"]["name"] for each in body["tools"]] == [ANSWER_TOOL]
    assert body["tools"][0]["function"]["parameters"] == FORM.json_schema
    assert body["tool_choice"] == "required"
    assert system(body) == "Be brief."
    assert not any(message.tool_calls for message in state.messages)


async def test_tools_run_before_the_answer_and_a_call_beside_them_is_left_out() -> None:
    script = [
        calls(Call(ANSWER_TOOL, {"city": "?", "people": 0}), Call("look", {"city": "Rome"}), text="A look."),
        calls(Call(ANSWER_TOOL, ROME)),
    ]
    async with limited(script, *TOOLS) as (endpoint, model):
        state = await LocalDriver(agent(look), model=model).execute("Which?")
        bodies = [each.body for each in endpoint.requests]
    assert_completed(state, answer=ROME)
    assert_every_call_answered(state)
    assert [each["function"]["name"] for each in bodies[0]["tools"]] == ["look", ANSWER_TOOL]
    [answered] = [each for each in bodies[1]["messages"] if each["role"] == "assistant"]
    assert [each["function"]["name"] for each in answered["tool_calls"]] == ["look"]
    assert bodies[1]["messages"][-1]["content"] == "Rome has 3 people"


async def test_the_functions_name_is_never_that_of_a_tool() -> None:
    @tool(name=ANSWER_TOOL)
    def answered() -> str:
        """Be a tool of that name."""
        return "ran"

    script = [call(ANSWER_TOOL), calls(Call(f"{ANSWER_TOOL}_", ROME))]
    async with limited(script, *TOOLS) as (_, model):
        state = await LocalDriver(agent(answered), model=model).execute("Which?")
    assert_completed(state, answer=ROME)
    assert state.messages[2].text == "ran"


@pytest.mark.parametrize(
    ("choice", "offered", "sent"),
    [
        (None, ["look", ANSWER_TOOL], "required"),
        ("auto", ["look", ANSWER_TOOL], "required"),
        ("none", [ANSWER_TOOL], "required"),
        ("required", ["look"], "required"),
        ("look", ["look"], {"type": "function", "function": {"name": "look"}}),
    ],
)
async def test_a_choice_of_the_definitions_holds_beside_the_function(
    choice: str | None, offered: list[str], sent: object
) -> None:
    llm = frozen.replace(LLM_OF_ROUTE, tool_choice=choice)
    async with limited([say(ROME)], *TOOLS) as (endpoint, model):
        response = await model(replace(ASKED, llm=llm, tools=(schema("look"),)))
        body = endpoint.requests[0].body
    assert response.text == ROME
    assert [each["function"]["name"] for each in body["tools"]] == offered
    assert body["tool_choice"] == sent


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (calls(Call(ANSWER_TOOL, '{"city": "Ro')), "the arguments are not a usable JSON object"),
        (calls(Call(ANSWER_TOOL, {"city": "Rome"})), "'people' is a required property"),
        (calls(Call(ANSWER_TOOL, ROME), Call(ANSWER_TOOL, {"city": "Oslo", "people": 4})), "it has 2 final answers"),
        (say("Rome."), "not usable JSON"),
        (say(""), "the answer is empty"),
    ],
)
async def test_an_answers_call_that_is_wrong_is_asked_for_again(wrong: Reply, problem: str) -> None:
    async with limited([wrong, calls(Call(ANSWER_TOOL, ROME))], *TOOLS) as (endpoint, model):
        state = await LocalDriver(agent(look), model=model).execute("Which?")
        told = endpoint.requests[1].body["messages"][-1]["content"]
    assert_completed(state, answer=ROME)
    assert told.startswith("Your answer cannot be used: ")
    assert problem in told


async def test_the_same_answer_twice_is_one() -> None:
    async with limited([calls(Call(ANSWER_TOOL, ROME), Call(ANSWER_TOOL, ROME))], *TOOLS) as (_, model):
        assert (await model(ASKED)).text == ROME


async def test_an_answers_call_that_was_cut_counts_as_any_cut_answer() -> None:
    cut = calls(Call(ANSWER_TOOL, '{"city": "Ro'), finish_reason="length")
    async with limited([cut], *TOOLS) as (_, model):
        state = await LocalDriver(agent(), model=model).execute("Which?")
    assert state.stop_reason is StopReason.FINISH_REASON
    assert "the answer was cut at the output limit" in str(state.errors)


async def test_the_listener_gets_the_answers_call_as_bytes_alone() -> None:
    parts: list[AnswerPart] = []
    async with limited([calls(Call(ANSWER_TOOL, ROME), text="Here.")], *TOOLS) as (_, model):
        await model(replace(ASKED, listener=parts.append))
    assert "".join(part.text for part in parts) == "Here."
    assert sum(part.call_bytes for part in parts) >= len(ROME)


async def test_signatures_of_calls_stay_with_their_calls_where_the_answers_is_left_out() -> None:
    item = ProviderItem(route="", api="openai_chat", body='{"calls":{"0":{"s":"a"},"1":{"s":"b"}},"extra_content":1}')
    other = ProviderItem(route="", api="other", body='{"calls":{"0":1}}')
    both = (ToolCall(id="1", name=ANSWER_TOOL), ToolCall(id="2", name="look"))

    async def answer(_: ModelRequest) -> InferenceResponse:
        return InferenceResponse(tool_calls=both, items=(item, other))

    model = PromptedModel(FunctionModel(answer), TOOLS)
    response = await model(replace(ASKED, tools=(schema("look"),)))
    assert [each.id for each in response.tool_calls] == ["2"]
    assert json.loads(response.items[0].body) == {"calls": {"0": {"s": "b"}}, "extra_content": 1}
    assert response.items[1] == other


@pytest.mark.parametrize("can", [WORDS, TOOLS, OBJECTS, ("stream", "tools", "json_object")])
@pytest.mark.parametrize("tools", [(), (schema("look"),)])
def test_no_mode_asks_with_more_than_a_budget_reserves(
    can: tuple[Capability, ...], tools: tuple[ToolSchema, ...]
) -> None:
    asked = replace(ASKED, tools=tools)
    sent = asked_by(answer_mode(asked, can), asked)
    functions = json.dumps(wire_tools(sent), separators=(",", ":")) if sent.tools else ""
    words = "".join(each.text for each in sent.messages)
    assert len(functions + sent.system_prompt + words) <= request_tokens(asked) - 2 * TEMPLATE_TOKENS


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("```json\n{}\n```", "{}"),
        ("  ```\n{}\n```\n", "{}"),
        ("````json\n{}\n````", "{}"),
        ("```json\n{}```", "{}"),
        ("```\n\n```", ""),
        ("{}", "{}"),
        ("", ""),
        ("```", "```"),
        ("``````", "``````"),
        ("Here:\n```json\n{}\n```", "Here:\n```json\n{}\n```"),
        ("```json\n{}\n```\nDone.", "```json\n{}\n```\nDone."),
        ("```json\n{}\n```\n```json\n{}\n```", "```json\n{}\n```\n```json\n{}\n```"),
        ('```json\n{"a": "```"}\n```', '{"a": "```"}'),
        ("```json\n{}\n````", "```json\n{}\n````"),
    ],
)
def test_one_fence_around_all_of_an_answer_is_taken_off_and_no_other(text: str, inner: str) -> None:
    assert unfenced(text) == inner


def test_a_long_answer_without_a_fence_of_its_own_takes_no_time() -> None:
    assert unfenced(long := "```" + "\n " * 2_000_000 + "`") == long


async def test_a_model_without_a_list_is_asked_as_ever() -> None:
    async with limited([say(ROME)], "stream", "json_schema") as (endpoint, model):
        await model(ASKED)
        assert endpoint.requests[0].body["response_format"]["type"] == "json_schema"
    assert request_body(replace(REQUEST, response_format=FORM))["system"][-1]["text"].startswith(SCHEMA_INSTRUCTION)
