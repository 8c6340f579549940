"""Tools that the provider runs itself, over the real clients: asked for by name, counted, kept, sent back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, get_args

import anthropic.types
import pytest
from openai.types import responses
from pydantic import ValidationError
from typing_extensions import get_type_hints

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import Model
from holdfast.core.base.server_tools import (
    COUNTED_TOOLS_MAX,
    OPTIONS_BYTES_MAX,
    OTHER,
    SERVER_TOOLS_MAX,
    ServerTool,
    counted_calls,
)
from holdfast.core.conversation.messages import user_message
from holdfast.models.anthropic import server_tools as of_anthropic
from holdfast.models.model_apis import ANTHROPIC, OPENAI, OPENAI_RESPONSES, PYDANTIC_AI, ModelApi
from holdfast.models.openai_responses import server_tools as of_openai
from holdfast.models.options import options_problem
from holdfast.testing.script import Reply, ServerCall, say
from tests.activities.asking import request, schema
from tests.models import anthropic_asking, asking_responses
from tests.models.anthropic_asking import said

SEARCH: Final = LLM.model_validate({"server_tools": ["web_search"]})
PLAIN: Final = LLM.model_validate({"server_tools": ["web_search"], "stream": False})
BOTH: Final = pytest.mark.parametrize("llm", [SEARCH, PLAIN], ids=["streamed", "plain"])


def llm_with(*tools: object, **fields: object) -> LLM:
    return LLM.model_validate({"server_tools": tools, **fields})


async def bodies_of_responses(*turns: Reply, llm: LLM, **changes: object) -> list[dict[str, Any]]:
    """Return what the Responses API is sent when the conversation goes on with its own answers."""
    async with asking_responses.asking(*turns) as (endpoint, model):
        await _converse(model, len(turns), llm, changes)
        return [each.body for each in endpoint.requests]


async def bodies_of_anthropic(*turns: Reply, llm: LLM, **changes: object) -> list[dict[str, Any]]:
    """Return what the Messages API is sent when the conversation goes on with its own answers."""
    async with anthropic_asking.asking(*turns) as (endpoint, model):
        await _converse(model, len(turns), llm, changes)
        return [each.body for each in endpoint.requests]


async def _converse(model: Model, turns: int, llm: LLM, changes: Mapping[str, object]) -> None:
    messages = [*request().messages]
    for _ in range(turns):
        answer = await model(request(llm=llm, messages=tuple(messages), **changes))
        messages += [said(answer), user_message("And?")]


# --- Responses


@BOTH
async def test_calls_are_counted_by_name_and_their_items_kept_in_place(llm: LLM) -> None:
    ran = (ServerCall("web_search", "ships"), ServerCall("web_search", "boats"), ServerCall("code_interpreter", "1+1"))
    answer = await asking_responses.answer_to(
        say("Two.", reasoning="I look.", server_calls=ran), request(llm=llm_with(*_names(ran), stream=llm.stream))
    )
    assert answer.server_tool_calls == {"web_search": 2, "code_interpreter": 1}
    assert (answer.text, answer.tool_calls, answer.dropped) == ("Two.", (), ())
    kinds = [json.loads(item.body).get("type", "text") for item in answer.items]
    assert kinds == ["reasoning", "web_search_call", "web_search_call", "code_interpreter_call", "text"]
    assert answer.context_tokens == answer.usage.input_tokens // 4


@BOTH
async def test_what_the_provider_ran_goes_back_verbatim_without_ids_that_nothing_is_stored_for(llm: LLM) -> None:
    turn = say("Two.", reasoning="I look.", server_calls=(ServerCall("web_search", "ships"),))
    _, second = await bodies_of_responses(turn, say("So."), llm=llm)
    assert second["input"][2] == {
        "type": "web_search_call",
        "status": "completed",
        "action": {"type": "search", "query": "ships"},
    }
    assert second["input"][3] == {"role": "assistant", "content": "Two."}


async def test_tools_go_out_with_their_options_behind_the_agents_own() -> None:
    llm = llm_with(
        {"type": "web_search", "options": {"search_context_size": "low"}, "usd_per_call": 0.01},
        "code_interpreter",
        {"type": "file_search", "options": {"vector_store_ids": ["vs_1"]}},
        tool_choice="required",
    )
    (body,) = await bodies_of_responses(say("x"), llm=llm, tools=(schema("add"),))
    assert [tool["type"] for tool in body["tools"]] == ["function", "web_search", "code_interpreter", "file_search"]
    assert body["tools"][1:] == [
        {"type": "web_search", "search_context_size": "low"},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "file_search", "vector_store_ids": ["vs_1"]},
    ]
    (alone,) = await bodies_of_responses(say("x"), llm=llm)
    assert (len(alone["tools"]), alone["tool_choice"]) == (3, "required")


async def test_no_tool_of_the_provider_is_asked_for_unless_it_is_named() -> None:
    (body,) = await bodies_of_responses(say("x"), llm=LLM())
    assert "tools" not in body
    (other,) = await bodies_of_anthropic(say("x"), llm=LLM())
    assert "tools" not in other


@BOTH
async def test_a_call_that_nobody_asked_for_is_kept_and_counted(llm: LLM) -> None:
    asked = request(llm=LLM(stream=llm.stream))
    answer = await asking_responses.answer_to(say("x", server_calls=(ServerCall(),)), asked)
    assert (answer.server_tool_calls, len(answer.items)) == ({"web_search": 1}, 2)
    other = await anthropic_asking.answer_to(say("x", server_calls=(ServerCall(),)), asked)
    assert (other.server_tool_calls, len(other.items)) == ({"web_search": 1}, 3)


async def test_a_name_that_cannot_travel_is_counted_under_one_that_can() -> None:
    item = {"type": "\ud800_call", "id": "x", "status": "completed"}
    answer = await asking_responses.answer_to(say("x", blocks=(item,)), request(llm=PLAIN))
    assert answer.server_tool_calls == {"?": 1}


# --- Anthropic


@BOTH
async def test_anthropics_calls_are_counted_and_go_back_with_their_results(llm: LLM) -> None:
    ran = (ServerCall("web_search", "ships"), ServerCall("web_fetch", "https://example.org/"))
    turn = say("Two.", reasoning="I look.", server_calls=ran)
    asked = llm_with(*_names(ran), stream=llm.stream)
    answer = await anthropic_asking.answer_to(turn, request(llm=asked))
    assert answer.server_tool_calls == {"web_search": 1, "web_fetch": 1}
    _, second = await bodies_of_anthropic(turn, say("So."), llm=asked)
    kinds = [block["type"] for block in second["messages"][1]["content"]]
    results = ["server_tool_use", "web_search_tool_result", "server_tool_use", "web_fetch_tool_result"]
    assert kinds == ["thinking", *results, "text"]
    assert second["messages"][1]["content"][1]["input"] == {"query": "ships"}


@BOTH
async def test_the_parts_of_code_execution_count_as_one_tool(llm: LLM) -> None:
    asked = llm_with("code_execution", stream=llm.stream)
    answer = await anthropic_asking.answer_to(
        say("2", server_calls=(ServerCall("code_execution", "echo 2", "2"),)), request(llm=asked)
    )
    assert answer.server_tool_calls == {"code_execution": 1}


async def test_searches_that_only_the_usage_tells_of_are_counted() -> None:
    details = {"input_tokens": 9, "output_tokens": 2, "server_tool_use": {"web_search_requests": 3, "odd": 7}}
    body = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "x"}], "usage": details}
    answer = await anthropic_asking.answer_to(
        Reply(body=json.dumps({**body, "id": "m", "model": "c", "stop_reason": "end_turn"})), request(llm=PLAIN)
    )
    assert answer.server_tool_calls == {"web_search": 3}


async def test_anthropics_tools_go_out_by_name_and_version_before_the_agents_own() -> None:
    llm = llm_with(
        {"type": "web_search", "options": {"max_uses": 3, "allowed_domains": ["example.org"]}},
        "web_fetch_20260209",
        "code_execution",
    )
    (body,) = await bodies_of_anthropic(say("x"), llm=llm, tools=(schema("add"),))
    assert body["tools"][:3] == [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3, "allowed_domains": ["example.org"]},
        {"type": "web_fetch_20260209", "name": "web_fetch"},
        {"type": "code_execution_20250825", "name": "code_execution"},
    ]
    assert "cache_control" in body["tools"][3]
    (alone,) = await bodies_of_anthropic(say("x"), llm=llm)
    assert "cache_control" in alone["tools"][2]


# --- what is refused, and when


@pytest.mark.parametrize(
    ("api", "tool", "words"),
    [
        (OPENAI, "web_search", "the OpenAI API does not know llm.server_tools (it knows: temperature"),
        (PYDANTIC_AI, "web_search", "Pydantic AI does not know llm.server_tools (it knows: temperature"),
        (OPENAI_RESPONSES, "web_serch", "runs no tool 'web_serch'; did you mean 'web_search'?"),
        (OPENAI_RESPONSES, "image_generation", "runs no tool 'image_generation'; there are: code_interpreter"),
        (OPENAI_RESPONSES, "file_search", "file_search of OpenAI's Responses API needs the option 'vector_store_ids'"),
        (
            OPENAI_RESPONSES,
            {"type": "web_search", "options": {"search_context_sise": "low"}},
            "web_search of OpenAI's Responses API has no option 'search_context_sise'; did you mean",
        ),
        (ANTHROPIC, "web_search_20250306", "runs no tool 'web_search_20250306'; did you mean 'web_search_20250305'?"),
        (ANTHROPIC, {"type": "web_fetch", "options": {"max_use": 1}}, "no option 'max_use'; did you mean 'max_uses'?"),
    ],
)
def test_what_an_api_does_not_run_is_refused_with_the_nearest_name(api: ModelApi, tool: object, words: str) -> None:
    assert words in options_problem(llm_with(tool), api)


def test_what_an_api_runs_is_not_refused() -> None:
    tools = ["web_search", {"type": "web_search", "options": {"max_uses": 2}}]
    assert [options_problem(llm_with(tool), ANTHROPIC) for tool in tools] == ["", ""]
    assert options_problem(llm_with("code_interpreter"), OPENAI_RESPONSES) == ""


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        (["Web Search"], "match pattern"),
        (["web_search", "web_search_20260209"], "'web_search' is given twice"),
        (["web_search", "web_search_preview"], "'web_search' is given twice"),
        ([f"tool_{'a' * place}" for place in range(1, SERVER_TOOLS_MAX + 2)], "at most 16"),
        ([{"type": "web_search", "options": {"type": "other"}}], "'type' is no option"),
        ([{"type": "web_search", "options": {"x": "y" * OPTIONS_BYTES_MAX}}], "at most 8,192 are sent"),
        ([{"type": "web_search", "usd_per_call": -1}], "greater than or equal to 0"),
        ([{"type": "web_search", "max_uses": 1}], "Extra inputs"),
    ],
)
def test_a_list_that_no_call_could_be_made_with_is_refused(tools: list[object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        llm_with(*tools)


def test_names_beyond_the_bound_count_as_other() -> None:
    counts = counted_calls(["", *(f"t{n}" for n in range(COUNTED_TOOLS_MAX + 3)), "x" * 100])
    assert (counts[OTHER], len(counts)) == (6, COUNTED_TOOLS_MAX)


# --- what the vendors' own types say


def _fields(param: Any) -> set[str]:  # noqa: ANN401  # a TypedDict
    return set(get_type_hints(param))


def _types(param: Any) -> tuple[str, ...]:  # noqa: ANN401  # a TypedDict
    return get_args(get_type_hints(param)["type"])


def test_anthropics_tools_and_options_are_those_of_its_client() -> None:
    named = ("WebSearchTool20", "WebFetchTool20", "CodeExecutionTool20")
    params = [getattr(anthropic.types, name) for name in dir(anthropic.types) if name.startswith(named)]
    theirs = {kind: _fields(param) for param in params for kind in _types(param)}
    ours = {kind: options for kind, options in of_anthropic.SERVER_TOOLS.items() if kind not in of_anthropic.VERSIONS}
    # the run sets these itself, or they are about tools that are shown later
    own = {"type", "name", "cache_control", "defer_loading", "strict"}
    assert {kind: set(options) for kind, options in ours.items()} == {k: each - own for k, each in theirs.items()}
    assert set(of_anthropic.VERSIONS.values()) < set(ours)


def test_openais_tools_and_options_are_those_of_its_client() -> None:
    params = [
        responses.WebSearchToolParam,
        responses.WebSearchPreviewToolParam,
        responses.FileSearchToolParam,
        responses.tool_param.CodeInterpreter,
    ]
    theirs = {kind: _fields(param) - {"type", "allowed_callers"} for param in params for kind in _types(param)}
    assert {kind: set(options) for kind, options in of_openai.SERVER_TOOLS.items()} == theirs


def _names(calls: tuple[ServerCall, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(call.name for call in calls))


def test_a_name_is_the_type_without_its_version() -> None:
    types = ["web_search", "web_search_preview_2025_03_11", "web_search_20250305", "code_execution_20250825"]
    assert [ServerTool(type=each).name for each in types] == ["web_search"] * 3 + ["code_execution"]
