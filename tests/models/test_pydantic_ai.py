"""Models of Pydantic AI over real HTTP: our terms out, each API's terms in, nothing lost between."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace as with_fields
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel as CannedModel
from pydantic_ai.usage import RequestUsage

from holdfast.core.agent.answer_types import format_of
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import AnswerPart
from holdfast.core.agent.policies import JsonObjectFormat
from holdfast.core.base.bounds import OUTPUT_TOKENS_MAX, REPORTED_TOKENS_MAX
from holdfast.core.base.frozen import replace
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.messages import FilePart, ImagePart, Message, ToolCall, user_message
from holdfast.core.conversation.messages import TextPart as Words
from holdfast.core.conversation.provider_items import ITEMS_MAX
from holdfast.models import ProviderSettings, PydanticAIModel
from holdfast.models.model_apis import PYDANTIC_AI
from holdfast.models.pydantic_ai.answer_parts import EMPTY
from holdfast.models.pydantic_ai.conversation import CONTINUE
from holdfast.testing.anthropic_wire_format import redacted_thinking
from holdfast.testing.script import Call, calls, say
from tests.activities.asking import KEY, REQUEST, request, schema
from tests.models.pydantic_ai_asking import ANTHROPIC, CHAT, RESPONSES, Kind, answer_to, asking, failure_with, said
from tests.sent_files import MP3, pdf

PIXEL = "iVBORw0KGgo="
EACH = pytest.mark.parametrize("kind", [CHAT, RESPONSES, ANTHROPIC], ids=["chat", "responses", "anthropic"])
EITHER = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
ADD = calls(Call("add", {"a": 1}), Call("echo", {"text": "ü"}), text="Let me see.", reasoning="I must add. 🙂")
TOOLS = (schema("add"), schema("echo"))


def results(*texts: str) -> tuple[Message, ...]:
    return tuple(Message(role="tool", content=text, tool_call_id=f"call_0_{n}") for n, text in enumerate(texts))


async def body_of(kind: Kind, **changes: Any) -> dict[str, Any]:  # noqa: ANN401  # fields of any type
    """Return the request's body as the endpoint saw and accepted it."""
    async with asking(kind, say("{}")) as (endpoint, model):
        await model(request(**changes))
        return endpoint.requests[0].body


@EACH
@EITHER
async def test_an_answer_is_read_with_its_usage_model_and_ids(kind: Kind, *, stream: bool) -> None:
    parts = list[AnswerPart]()
    response = await answer_to(
        kind, say("It is a test.", usage=(7, 3)), request(llm=LLM(stream=stream), listener=parts.append)
    )
    assert (response.text, response.tool_calls, response.dropped) == ("It is a test.", (), ())
    assert response.finish_reason == {CHAT: "stop", RESPONSES: "completed", ANTHROPIC: "end_turn"}[kind]
    assert response.model == kind.name.partition(":")[2]
    assert response.response_id.endswith("0")
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.estimated_tokens) == (7, 3, 0)
    assert parts[0] == AnswerPart(unseen=not stream)
    assert "".join(part.text for part in parts) == "It is a test."
    assert [part.usage for part in parts if part.usage][-1] == response.usage


@EACH
@EITHER
async def test_calls_and_what_the_provider_wants_back_return_in_their_place(kind: Kind, *, stream: bool) -> None:
    parts = list[AnswerPart]()
    async with asking(kind, ADD, say("3")) as (endpoint, model):
        asked = request(llm=LLM(stream=stream), tools=TOOLS, listener=parts.append)
        answer = await model(asked)
        assert [(call.name, call.arguments) for call in answer.tool_calls] == [
            ("add", {"a": 1}),
            ("echo", {"text": "ü"}),
        ]
        assert answer.text == "Let me see."
        assert answer.reasoning == ("" if kind is CHAT else "I must add. 🙂")  # the fake chat endpoint sends none
        assert not stream or sum(part.call_bytes for part in parts) > len("addecho")
        back = (*asked.messages, said(answer), *results("3", "ü"))
        assert (await model(request(llm=asked.llm, tools=TOOLS, messages=back))).text == "3"
        sent = json.dumps(endpoint.requests[1].body, ensure_ascii=False)
    places = [sent.index(text) for text in ("I must add. 🙂", "Let me see.", "call_0_0", "call_0_1") if text in sent]
    assert places == sorted(places)
    assert len(places) == (3 if kind is CHAT else 4)
    assert not answer.items or {item.api for item in answer.items} <= {"pydantic_ai:openai", "pydantic_ai:anthropic"}


async def test_thinking_goes_back_signed_hidden_one_too_and_to_its_own_endpoint_alone() -> None:
    hidden = with_fields(ADD, blocks=(redacted_thinking(),))
    async with asking(ANTHROPIC, hidden, say("3"), say("4")) as (endpoint, model):
        answer = await model(request(tools=TOOLS))
        back = (*REQUEST.messages, said(answer), *results("3", "ü"))
        await model(request(tools=TOOLS, messages=back))
        kinds = [block["type"] for block in endpoint.requests[1].body["messages"][1]["content"]]
        assert kinds == ["thinking", "redacted_thinking", "text", "tool_use", "tool_use"]
        changed = replace(said(answer), content="Other words.")  # by a hook
        await model(request(tools=TOOLS, messages=(*REQUEST.messages, changed, *results("3", "ü"))))
        kinds = [block["type"] for block in endpoint.requests[2].body["messages"][1]["content"]]
        assert kinds == ["thinking", "redacted_thinking", "text", "tool_use", "tool_use"]
    async with asking(ANTHROPIC, say("x"), say("3")) as (elsewhere, other):
        await other(request(tools=TOOLS, messages=back))
    kinds = [block["type"] for block in elsewhere.requests[0].body["messages"][1]["content"]]
    assert kinds == ["text", "tool_use", "tool_use"]
    async with asking(CHAT, say("x"), say("3")) as (elsewhere, other):
        await other(request(tools=TOOLS, messages=back))
    assert "I must add." not in elsewhere.requests[0].raw.decode()


@EACH
async def test_parts_of_the_usage_are_parts_of_the_whole(kind: Kind) -> None:
    details: dict[str, Any] = {
        CHAT: {"prompt_tokens_details": {"cached_tokens": 60}, "completion_tokens_details": {"reasoning_tokens": 5}},
        RESPONSES: {"input_tokens_details": {"cached_tokens": 60}, "output_tokens_details": {"reasoning_tokens": 5}},
        ANTHROPIC: {},
    }[kind]
    async with asking(kind, ADD, say("3", usage=(100, 20), usage_details=details)) as (_, model):
        answer = await model(request(tools=TOOLS))
        back = (*REQUEST.messages, said(answer), *results("3", "ü"))
        usage = (await model(request(tools=TOOLS, messages=back))).usage
    assert (usage.input_tokens, usage.output_tokens, usage.estimated_tokens) == (100, 20, 0)
    if kind is ANTHROPIC:  # our requests are marked: what was sent before is read, the rest is written
        assert usage.cached_tokens > 0
        assert usage.cached_tokens + usage.cache_write_tokens == 100
    else:
        assert (usage.cached_tokens, usage.reasoning_tokens) == (60, 5)


@EITHER
async def test_usage_that_cannot_be_is_bounded_and_a_missing_one_is_a_bound(*, stream: bool) -> None:
    asked = request(llm=LLM(stream=stream), max_output_tokens=50, input_max=30)
    huge = await answer_to(CHAT, say("It is.", usage=(10**15, 10**15)), asked)
    assert huge.usage == Usage(input_tokens=REPORTED_TOKENS_MAX, output_tokens=REPORTED_TOKENS_MAX)
    async with asking(CHAT, say("It is.", usage=None)) as (_, model):
        usage = (await model(with_fields(asked, input_max=30))).usage
    assert usage.input_tokens == 30
    assert 0 < usage.output_tokens <= 50
    assert usage.estimated_tokens == usage.total_tokens


@EACH
async def test_the_options_are_sent_as_each_api_has_them(kind: Kind) -> None:
    llm = LLM(
        tool_choice="required", parallel_tool_calls=False, extra={"metadata": {"team": "x"}}, max_output_tokens=99
    )
    body = await body_of(kind, llm=llm, tools=TOOLS, max_output_tokens=99)
    forced = {
        CHAT: {"tool_choice": "required", "parallel_tool_calls": False, "max_completion_tokens": 99},
        RESPONSES: {"tool_choice": "required", "parallel_tool_calls": False, "max_output_tokens": 99},
        ANTHROPIC: {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}, "max_tokens": 99},
    }[kind]
    assert forced.items() <= body.items()
    assert body["metadata"] == {"team": "x"}
    named = await body_of(kind, llm=LLM(tool_choice="echo"), tools=TOOLS)
    assert "echo" in json.dumps(named["tool_choice"])
    free = await body_of(kind, llm=LLM(tool_choice="required"))
    assert "tools" not in free
    assert OUTPUT_TOKENS_MAX in free.values()


async def test_other_options_are_sent_too() -> None:
    llm = LLM(seed=7, stop=("END",), reasoning_effort="low", service_tier="flex", strict=True)
    closed = replace(
        schema("add"), parameters={"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    )
    body = await body_of(CHAT, llm=llm, tools=(closed, schema("echo")))
    assert (body["seed"], body["stop"], body["reasoning_effort"], body["service_tier"]) == (7, ["END"], "low", "flex")
    assert [each["function"].get("strict") for each in body["tools"]] == [True, None]


class Sum(BaseModel):
    total: int


@EACH
async def test_a_typed_answer_is_enforced_by_the_provider_where_its_profile_says_so(kind: Kind) -> None:
    form = format_of(Sum)
    body = json.dumps(await body_of(kind, response_format=form))
    assert '"json_schema"' in body
    assert "total" in body
    loose = json.dumps(await body_of(kind, response_format=JsonObjectFormat()))
    assert "JSON" in loose


async def test_a_model_that_cannot_enforce_a_form_is_asked_for_it() -> None:
    seen = list[AgentInfo]()

    def answer(_: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(info)
        return ModelResponse(parts=[TextPart('{"total": 3}')])

    model = PydanticAIModel(FunctionModel(answer, profile={"supports_json_schema_output": False}))
    assert (await model(request(response_format=format_of(Sum)))).text == '{"total": 3}'
    assert seen[0].instructions is not None
    assert "total" in seen[0].instructions


@EACH
async def test_pictures_are_sent_and_so_are_messages_of_every_role(kind: Kind) -> None:
    picture = Message(
        role="user",
        content=(
            Words(text="See:"),
            ImagePart(url=f"data:image/png;base64,{PIXEL}", detail="low"),
            ImagePart(url="https://x/a.png"),
        ),
    )
    order = Message(role="system", content="Be kind.")
    messages = (
        *([order] if kind is ANTHROPIC else []),  # its newer models take one later, which the fake does not know
        Message(role="assistant", content="Hello."),
        *([] if kind is ANTHROPIC else [order]),
        picture,
        Message(role="user", content=" "),
        Message(role="assistant"),
    )
    body = json.dumps(await body_of(kind, messages=messages))
    assert PIXEL in body
    assert "https://x/a.png" in body
    assert all(text in body for text in (CONTINUE, "Hello.", "Be kind.", EMPTY))


@EACH
async def test_results_and_orders_without_words_are_sent_with_words(kind: Kind) -> None:
    asked = (ToolCall(id="a", name="add"), ToolCall(id="b", name="add"))
    messages = (
        Message(role="system", content=" "),
        user_message("Add."),
        Message(role="assistant", tool_calls=asked),
        Message(role="tool", tool_call_id="a"),
        Message(role="tool", tool_call_id="b", content=" \n"),
    )
    body = await body_of(kind, messages=messages, tools=TOOLS)
    assert json.dumps(body).count(EMPTY) == 3, "Anthropic's API refuses blank texts, also those of a tool's result"


@EACH
async def test_calls_of_another_provider_go_on_with_ids_that_this_one_takes(kind: Kind) -> None:
    ids = ("functions.add:0", "ü|1 x", "y" * 64)
    asked = Message(role="assistant", tool_calls=tuple(ToolCall(id=each, name="add") for each in ids))
    results = [Message(role="tool", tool_call_id=each, content="7") for each in ids]
    body = json.dumps(await body_of(kind, messages=(user_message("Add."), asked, *results), tools=TOOLS))
    assert ("functions.add:0" in body) is (kind is not ANTHROPIC), "models may go by the ids that they have given"
    assert body.count("y" * 64) == 2


@EACH
async def test_files_are_sent_as_the_provider_takes_them(kind: Kind) -> None:
    paper, notes = base64.b64encode(pdf()).decode(), base64.b64encode(b"a,b").decode()
    parts = (
        Words(text="Look."),
        FilePart(name="paper", media_type="application/pdf", data=paper),
        FilePart(name="notes.csv", media_type="text/csv", data=notes),
    )
    body = json.dumps(await body_of(kind, messages=(Message(role="user", content=parts),)))
    assert paper in body
    assert "a,b" in body
    model = PydanticAIModel(kind.model("http://127.0.0.1:9/v1"))
    assert set(model.file_kinds(LLM())) == {"images", "pdf", "text"}
    seen = list[ModelMessage]()

    def listen(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        seen.extend(messages)
        return ModelResponse(parts=[TextPart("A song.")])

    song = FilePart(name="a.mp3", media_type="audio/mpeg", data=base64.b64encode(MP3).decode())
    script = PydanticAIModel(FunctionModel(listen))
    assert "audio" in script.file_kinds(LLM())
    await script(request(messages=(Message(role="user", content=(song,)),)))
    assert "audio/mpeg" in repr(seen)


def test_what_cannot_be_asked_is_refused_before_a_run() -> None:
    chat = PydanticAIModel(CHAT.model("http://127.0.0.1:9/v1"))
    assert chat.problem(LLM(seed=1, reasoning_effort="low", stop=("x",))) == ""
    assert chat.problem(LLM(model="gpt-5")) == chat.problem(LLM(model="openai:gpt-5")) == chat.missing == ""
    assert "llm.model is 'gpt-4'" in chat.problem(LLM(model="gpt-4"))
    assert "does not know llm.verbosity" in chat.problem(LLM(verbosity="low"))
    assert "knows no llm.service_tier 'scale'" in chat.problem(LLM(service_tier="scale"))
    responses = PydanticAIModel(RESPONSES.model("http://127.0.0.1:9/v1"))
    assert "does not know llm.stop, llm.seed" in responses.problem(LLM(seed=1, stop=("x",)))
    anthropic = PydanticAIModel(ANTHROPIC.model("http://127.0.0.1:9/v1"))
    assert "does not know llm.seed" in anthropic.problem(LLM(seed=1))
    silent = PydanticAIModel(CannedModel())
    assert "does not know llm.reasoning_effort" in silent.problem(LLM(reasoning_effort="high"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt-5", "Unknown model: gpt-5"),
        ("nowhere:x", "Unknown model"),
        ("bedrock:anthropic.claude-opus-4-8", "boto3"),
        ("openai-chat:gpt-5", "OPENAI_API_KEY"),
        (None, "no model is named"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_before_a_run(
    name: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HOLDFAST_MODEL"):
        monkeypatch.delenv(variable, raising=False)
    assert words in PydanticAIModel(name).problem(LLM())


async def test_a_named_model_takes_address_and_key_of_its_settings() -> None:
    async with CHAT.endpoint([say("x"), say("y")]) as endpoint:
        settings = ProviderSettings(
            base_url=endpoint.base_url, api_key=KEY, model=CHAT.name, api=PYDANTIC_AI, route="far"
        )
        model = PydanticAIModel(settings)
        assert model.problem(LLM()) == ""
        assert (await model(REQUEST)).text == "x"
        assert (await model(request(llm=LLM(model="openai-chat:gpt-4.1")))).model == "gpt-4.1"
        await model.close()


async def test_the_same_model_serves_one_event_loop_after_another() -> None:
    async with asking(CHAT, say("x"), say("y")) as (_, model):
        await model(REQUEST)

        def elsewhere() -> str:
            async def ask() -> str:
                answer = await model(REQUEST)
                await model.close()
                return answer.text

            return asyncio.run(ask())

        assert await asyncio.to_thread(elsewhere) == "x"


async def test_scripts_of_pydantic_ai_answer_streamed_and_plain() -> None:
    async def stream(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        yield "Hel"
        yield "lo."

    def plain(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert info.instructions == "Be brief."
        assert [tool.name for tool in info.function_tools] == ["add"]
        usage = RequestUsage(input_tokens=50, output_tokens=10, cache_read_tokens=40, output_reasoning_tokens=70)
        return ModelResponse(parts=[ToolCallPart("add", {"a": len(messages)}, tool_call_id="c1")], usage=usage)

    parts = list[AnswerPart]()
    assert (
        await PydanticAIModel(FunctionModel(stream_function=stream))(request(listener=parts.append))
    ).text == "Hello."
    assert [part.text for part in parts if part.text] == ["Hel", "lo."]
    answer = await PydanticAIModel(FunctionModel(plain))(request(tools=(schema("add"),)))
    assert [(call.id, call.arguments) for call in answer.tool_calls] == [("c1", {"a": 1})]
    assert answer.usage == Usage(input_tokens=50, output_tokens=10, cached_tokens=40, reasoning_tokens=10)
    canned = PydanticAIModel(CannedModel(custom_output_text="Done."))
    assert [(await canned(request(llm=LLM(stream=stream)))).text for stream in (True, False)] == ["Done.", "Done."]


async def test_a_fault_of_a_script_stays_its_own() -> None:
    def broken(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        raise KeyError("mine")

    with pytest.raises(KeyError):
        await PydanticAIModel(FunctionModel(broken))(REQUEST)


async def test_an_answer_with_too_many_parts_says_that_they_are_not_kept() -> None:
    thoughts = [ThinkingPart("x", signature="s", provider_name="function") for _ in range(ITEMS_MAX)]

    def think(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[*thoughts, TextPart("Yes.")])

    model = PydanticAIModel(FunctionModel(think))
    answer = await model(REQUEST)
    assert (answer.text, answer.items, answer.dropped) == ("Yes.", (), ("parts",))


@pytest.mark.parametrize("bodies", [("no", "[]", "{}", "{}", "{}"), (None, "{}", None, None, None)])
async def test_items_of_a_snapshot_that_nothing_can_be_made_of_are_left_out(bodies: Sequence[str | None]) -> None:
    async with asking(ANTHROPIC, ADD, say("3")) as (endpoint, model):
        answer = await model(request(tools=TOOLS))
        items = tuple(
            item if body is None else replace(item, body=body) for item, body in zip(answer.items, bodies, strict=False)
        )
        back = (user_message("x"), replace(said(answer), items=items), *results("3", "ü"))
        assert (await model(request(tools=TOOLS, messages=back))).text == "3"
        kinds = [block["type"] for block in endpoint.requests[1].body["messages"][1]["content"]]
    assert kinds == ["text", "tool_use", "tool_use"]


async def test_pictures_that_are_none_are_refused() -> None:
    async with asking(CHAT, say("x")) as (_, model):
        message = Message(role="user", content=(ImagePart(url="data:image/png,raw"),))
        failure = await failure_with(model, request(messages=(message,)))
    assert (failure.kind, failure.again, failure.free) == ("InvalidInput", False, True)
