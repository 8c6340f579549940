"""What servers behind chat completions were seen to send, over real HTTP with the real client."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.core.agent.agent import Agent
from holdfast.core.agent.definition import LLM
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.agent.model import AnswerPart, ModelRequest
from holdfast.core.base.bounds import WORD_CHARS_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.usage import Usage
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.core.conversation.stop_reasons import StopReason
from holdfast.local import LocalDriver
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.models.openai_chat.think_tags import ThinkTags, split
from holdfast.runtime.answer_check import TOOL_USE_FAILED
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Reply, say
from tests.activities.asking import answer_to, asking, failure_of, failure_with, request

WHOLE = request(llm=LLM(stream=False))
USAGE = {"prompt_tokens": 900, "completion_tokens": 0}
FAILED = {
    "message": "Failed to call a function. Please adjust your prompt.",
    "type": "invalid_request_error",
    "code": "tool_use_failed",
    "failed_generation": "<function=add{a: 1}</function>",
}


def plain(choice: dict[str, Any], **fields: Any) -> Reply:  # noqa: ANN401  # any JSON value
    return Reply(body=json.dumps({"id": "1", "model": "m", "choices": [{"index": 0, **choice}], **fields}))


def streamed(*chunks: dict[str, Any]) -> Reply:
    return Reply(body=tuple(f"data: {json.dumps(each)}\n\n".encode() for each in chunks))


def chunk(delta: dict[str, Any], finish: str | None = None, **choice: Any) -> dict[str, Any]:  # noqa: ANN401  # JSON
    return {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish, **choice}]}


def both(message: dict[str, Any], finish: str = "stop") -> list[tuple[Reply, ModelRequest]]:
    """An answer all at once, and the same as one delta."""
    whole = plain({"message": {"role": "assistant", **message}, "finish_reason": finish})
    return [(whole, WHOLE), (streamed(chunk(message), chunk({}, finish)), request())]


@pytest.mark.parametrize("message", [{}, {"message": None}])
async def test_an_answer_without_a_message_that_was_filtered_is_an_answer_and_counts(message: dict[str, None]) -> None:
    turn = plain({**message, "finish_reason": "content_filter"}, usage=USAGE)
    async with asking(turn) as (endpoint, model):
        response = await model(WHOLE)
        assert len(endpoint.requests) == 1
    assert (response.text, response.finish_reason) == ("", "content_filter")
    assert response.usage == Usage(input_tokens=900)


async def test_an_answer_without_a_message_for_any_other_reason_is_none() -> None:
    async with asking(plain({"finish_reason": "stop"})) as (_, model):
        assert (await failure_with(model, WHOLE)).kind == "UnusableAnswer"


async def test_a_filtered_answer_ends_the_run_where_the_agent_says_so_and_is_not_asked_for_again() -> None:
    turn = plain({"finish_reason": "content_filter"}, usage=USAGE)
    agent = Agent(name="clerk", tools=(), llm=LLM(stream=False), finish_reasons=("content_filter",))
    async with asking(turn) as (endpoint, model):
        state = await LocalDriver(agent, model=model).execute("x")
        assert len(endpoint.requests) == 1
    assert state.stop_reason is StopReason.FINISH_REASON
    assert state.usage.input_tokens == 900


def refused_calls() -> list[Reply]:
    """A refusal of the model's own call: by status, and within a stream."""
    by_status = Reply(status=400, body=json.dumps({"error": FAILED}))
    return [by_status, streamed(chunk({"content": ""}), {"error": {**FAILED, "status_code": 400}})]


@pytest.mark.parametrize("turn", refused_calls())
async def test_a_call_that_the_endpoint_refuses_is_an_answer_that_cannot_be_used(turn: Reply) -> None:
    response = await answer_to(turn)
    assert (response.text, response.tool_calls) == (FAILED["failed_generation"], ())
    assert response.finish_reason == TOOL_USE_FAILED
    assert "Failed to call a function" in (response.format_problem or "")
    assert response.usage.output_tokens == len(FAILED["failed_generation"])
    assert response.usage.estimated_tokens == response.usage.total_tokens


@pytest.mark.parametrize("turn", refused_calls())
async def test_the_model_is_told_and_asked_again_within_a_bound(turn: Reply) -> None:
    agent = Agent(name="clerk", tools=(), reasks_max=1)
    async with asking(turn, say("done")) as (endpoint, model):
        state = await LocalDriver(agent, model=model).execute("x")
        sent = (endpoint.requests[-1].body or {})["messages"]
    assert (state.final_response, state.status) == ("done", ExecutionStatus.COMPLETED)
    assert [each["role"] for each in sent] == ["user", "assistant", "user"]
    assert sent[1]["content"] == FAILED["failed_generation"]
    assert "your tool call could not be read (Failed to call a function." in sent[2]["content"]
    async with asking(turn, turn, turn) as (endpoint, model):
        state = await LocalDriver(agent, model=model).execute("x")
        assert len(endpoint.requests) == 2
    assert state.stop_reason is StopReason.RETRY_LIMIT


async def test_a_refused_call_without_its_text_is_still_told_to_the_model() -> None:
    bare = Reply(status=400, body=json.dumps({"error": {"code": "tool_use_failed", "message": None}}))
    response = await answer_to(bare)
    assert response.text == ""
    assert (response.format_problem or "").startswith("your tool call could not be read")


async def test_other_refusals_stay_refusals() -> None:
    for code in ("invalid_request", ["tool_use_failed"], None):
        refused = Reply(status=400, body=json.dumps({"error": {**FAILED, "code": code}}))
        assert (await failure_of(refused)).kind == "RequestRefused"


async def test_the_old_function_call_is_a_call_that_gets_an_id_of_ours() -> None:
    whole = {"content": None, "function_call": {"name": "add", "arguments": '{"a":1}'}}
    pieces = [{"name": "add", "arguments": ""}, {"arguments": '{"a"'}, {"arguments": ":1}"}]
    stream = streamed(*(chunk({"function_call": each}) for each in pieces), chunk({}, "function_call"))
    for turn, asked in ((plain({"message": whole, "finish_reason": "function_call"}), WHOLE), (stream, request())):
        response = await answer_to(turn, asked)
        assert [(each.id, each.name, each.arguments) for each in response.tool_calls] == [("", "add", {"a": 1})]
        assert response.finish_reason == "function_call"


async def test_of_a_call_in_both_forms_the_new_one_counts() -> None:
    old = {"name": "add", "arguments": "{}"}
    calls = [{"index": 0, "id": "c", "type": "function", "function": old}]
    for turn, asked in both({"content": None, "function_call": old, "tool_calls": calls}, "tool_calls"):
        assert [each.id for each in (await answer_to(turn, asked)).tool_calls] == ["c"]


async def test_parts_that_are_not_kept_are_named() -> None:
    message = {
        "content": "x",
        "annotations": [{"type": "url_citation"}],
        "executed_tools": [{"type": "search"}],
        "audio": {"id": "a"},
        "images": [],
    }
    whole = plain({"message": message, "finish_reason": "stop", "logprobs": {"content": [{}]}})
    stream = streamed(chunk(message), chunk({}, logprobs={"content": [{}]}), chunk({}, "stop"))
    for turn, asked in ((whole, WHOLE), (stream, request())):
        response = await answer_to(turn, asked)
        assert (response.text, response.dropped) == ("x", ("annotations", "executed_tools", "audio", "logprobs"))
    async with asking(stream) as (_, model):
        state = await LocalDriver(Agent(name="clerk", tools=()), model=model).execute("x")
    assert [each.rpartition(" ")[2] for each in state.warnings if "not kept" in each] == list(response.dropped)


@pytest.mark.parametrize("reason", ["eos_token", "MALFORMED_FUNCTION_CALL", "x" * (WORD_CHARS_MAX + 1)])
async def test_an_unknown_finish_reason_is_kept_as_it_is(reason: str) -> None:
    for turn, asked in both({"content": "x"}, reason):
        response = await answer_to(turn, asked)
        assert (response.text, response.finish_reason) == ("x", reason[:WORD_CHARS_MAX])


# --- <think>


def in_pieces(text: str, size: int) -> tuple[str, str]:
    tags = ThinkTags()
    pieces = [tags.take(text[at : at + size]) for at in range(0, len(text), size)]
    pieces.append(tags.rest())
    return "".join(answer for answer, _ in pieces), "".join(thought for _, thought in pieces)


@pytest.mark.parametrize(
    ("text", "answer", "thought"),
    [
        ("<think>hm</think>\n\nSo.", "So.", "hm"),
        ("\n <think>\na < b </thin </think> So. <think>", "So. <think>", "\na < b </thin "),
        ("<think>never closed </thi", "", "never closed </thi"),
        ("<think></think>So.", "So.", ""),
        ("So <think>no</think>.", "So <think>no</think>.", ""),
        ("<thinking>", "<thinking>", ""),
        (" <thi", " <thi", ""),
        ("", "", ""),
        ("<think>a</think>b</think>", "b</think>", "a"),
    ],
)
def test_only_what_stands_between_the_tags_at_the_beginning_is_thinking(text: str, answer: str, thought: str) -> None:
    assert split(text) == (answer, thought)
    for size in (1, 2, 3, 5, 8):
        assert in_pieces(text, size) == (answer, thought), size


async def asked_with(turn: Reply, asked: ModelRequest, *, think_tags: bool) -> InferenceResponse:
    async with FakeOpenAI([turn]) as endpoint:
        model = OpenAIChat(ProviderSettings(base_url=endpoint.base_url, model="scripted", think_tags=think_tags))
        try:
            return await model(asked)
        finally:
            await model.close()


async def test_tags_are_text_unless_the_endpoint_is_said_to_think_in_them() -> None:
    said = say("<think>hm, 17?</think>\n\n17", piece_chars=3)
    for stream in (True, False):
        parts: list[AnswerPart] = []
        asked = request(llm=LLM(stream=stream), listener=parts.append)
        response = await asked_with(said, asked, think_tags=True)
        assert (response.text, response.reasoning) == ("17", "hm, 17?")
        assert "".join(each.text for each in parts) == "17"
        assert "".join(each.reasoning for each in parts) == "hm, 17?"
        plainly = await asked_with(said, request(llm=LLM(stream=stream)), think_tags=False)
        assert (plainly.text, plainly.reasoning) == ("<think>hm, 17?</think>\n\n17", "")


def test_the_environment_says_whether_an_endpoint_thinks_in_tags() -> None:
    assert ProviderSettings.from_environment({"HOLDFAST_THINK_TAGS": "1"}).think_tags
    assert not ProviderSettings.from_environment({}).think_tags
    with pytest.raises(InvalidInput, match="set it to 1 or 0"):
        ProviderSettings.from_environment({"HOLDFAST_THINK_TAGS": "yes"})


# --- short keys


@pytest.mark.parametrize("key", ["a", "none", "1234567"])
async def test_a_short_key_garbles_no_error(key: str) -> None:
    turn = Reply(status=400, text="none of a, b and 1234567 is a model")
    async with asking(turn, api_key=key) as (_, model):
        assert "none of a, b and 1234567 is a model" in (await failure_with(model)).message


async def test_a_key_of_eight_characters_is_struck_out() -> None:
    async with asking(Reply(status=400, text="bad key: 12345678"), api_key="12345678") as (_, model):
        assert "bad key: [secret]" in (await failure_with(model)).message
