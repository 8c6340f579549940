"""What providers behind chat completions want back: sent to them verbatim and in its place, to nobody else.

Over real HTTP with the real client; the fake endpoint refuses fields that it has not sent itself.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.model import AnswerPart
from holdfast.core.base.bounds import TEXT_CHARS_MAX
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.messages import Message, ToolCall, user_message
from holdfast.core.conversation.provider_items import ProviderItem
from holdfast.core.conversation.steps import AgentStep, InferenceResponse
from holdfast.models.openai_chat.chat_items import API
from holdfast.testing.script import Reply, say
from tests.activities.asking import REQUEST, answer_to, asking, request

FUNCTION = {"name": "add", "arguments": "{}"}
CALL = {"id": "c", "type": "function", "function": FUNCTION}
ENCRYPTED = {"type": "reasoning.encrypted", "data": "e" * 9, "id": "r", "format": "x", "index": 1}
SIGNED = {"type": "reasoning.text", "text": "Let me compute.", "signature": "S==", "format": "anthropic", "index": 0}
SIGNATURE = {"google": {"thought_signature": "G=="}}
OTHER_SIGNATURE = {"google": {"thought_signature": "H=="}}
THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "hm, 17?"}]}
WHOLE = request(llm=LLM(stream=False))


def plain(message: dict[str, Any]) -> Reply:
    """Return an answer all at once."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}
    return Reply(body=json.dumps({"id": "1", "model": "m", "choices": [choice]}))


def streamed(*deltas: dict[str, Any]) -> Reply:
    """Return an answer that streams, with these deltas."""
    choices: list[dict[str, Any]] = [{"index": 0, "delta": each, "finish_reason": None} for each in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    return Reply(body=tuple(f"data: {json.dumps({'model': 'm', 'choices': [each]})}\n\n".encode() for each in choices))


def replies(response: InferenceResponse) -> tuple[Message, ...]:
    """The answer as it stands in a conversation, with an answer to each call."""
    step = AgentStep(id="s", number=1, input_length=1, inference_response=response)
    return (*step.output_messages, *(Message(role="tool", content="3", tool_call_id=c.id) for c in response.tool_calls))


async def sent_back(
    turn: Reply, *more: Message, changed: str | None = None
) -> tuple[InferenceResponse, dict[str, Any]]:
    """Return what the model makes of `turn`, and its message as the endpoint sees it in the next request."""
    async with asking(turn, say("x")) as (endpoint, model):
        response = await model(request(llm=LLM(stream=isinstance(turn.body, tuple))))
        shown = response if changed is None else replace(response, text=changed)
        await model(request(messages=(*REQUEST.messages, *replies(shown), *more)))
        messages: list[dict[str, Any]] = (endpoint.requests[-1].body or {})["messages"]
        return response, messages[2]


@pytest.mark.parametrize(
    "turn",
    [
        plain({"content": "", "reasoning_content": "Let me \u00fc", "tool_calls": [CALL]}),
        streamed(
            {"reasoning_content": ""}, {"reasoning_content": "Let me "}, {"reasoning_content": "\u00fc"},
            {"content": "", "reasoning_content": None}, {"tool_calls": [{"index": 0, **CALL}]},
        ),
    ],
)  # fmt: skip
async def test_reasoning_beside_calls_goes_back_as_deepseek_wants_it(turn: Reply) -> None:
    response, message = await sent_back(turn)
    assert response.reasoning == "Let me \u00fc"
    assert message == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Let me \u00fc",
        "tool_calls": [CALL],
    }


@pytest.mark.parametrize(
    "turn",
    [
        plain({"content": "", "reasoning_content": "", "tool_calls": [CALL]}),
        streamed({"reasoning_content": ""}, {"tool_calls": [{"index": 0, **CALL}]}),
    ],
)
async def test_an_empty_reasoning_beside_calls_goes_back_too(turn: Reply) -> None:
    assert (await sent_back(turn))[1]["reasoning_content"] == ""


async def test_reasoning_goes_back_within_turns_that_called_tools_also_later_and_in_no_others() -> None:
    def answer(text: str, *calls: ToolCall) -> Message:
        item = ProviderItem(route="", api=API, body=json.dumps({"reasoning_content": f"thought {text}"}))
        return Message(role="assistant", content=text, tool_calls=calls, items=(item,))

    conversation = (
        user_message("a"), answer("1"),
        user_message("b"), answer("2", ToolCall(id="c", name="add")), Message(role="tool", tool_call_id="c"),
        answer("3"),
        user_message("c"), answer("4"),
        user_message("d"),
    )  # fmt: skip
    async with asking(plain({"content": "x", "reasoning_content": "y"}), say("x")) as (endpoint, model):
        await model(WHOLE)
        await model(request(messages=conversation))
        messages: list[dict[str, Any]] = (endpoint.requests[-1].body or {})["messages"]
    thought = {each["content"]: each.get("reasoning_content") for each in messages if each["role"] == "assistant"}
    assert thought == {"1": None, "2": "thought 2", "3": "thought 3", "4": None}


@pytest.mark.parametrize("odd", [{"type": {}}, {"type": ["x"]}, {"index": {}}, {"index": ["x"]}])
async def test_details_of_an_odd_type_or_place_stand_alone(odd: dict[str, Any]) -> None:
    _, message = await sent_back(streamed({"reasoning_details": [{**SIGNED, **odd}]}, {"content": "so"}))
    assert message["reasoning_details"] == [{**SIGNED, **odd}]


@pytest.mark.parametrize(
    "turn",
    [
        plain({"content": "so", "reasoning": "Let me compute.", "reasoning_details": [SIGNED, ENCRYPTED]}),
        streamed(
            {"reasoning": "Let ", "reasoning_details": [{**SIGNED, "text": "Let ", "signature": None}]},
            {"reasoning": "me compute.", "reasoning_details": [{**SIGNED, "text": "me compute.", "signature": None}]},
            {"reasoning_details": [{"type": "reasoning.text", "signature": "S==", "index": 0}]},
            {"reasoning_details": [{**ENCRYPTED, "data": "e" * 4}]},
            {"reasoning_details": [{**ENCRYPTED, "data": "e" * 5}]},
            {"content": "so"},
        ),
    ],
)  # fmt: skip
async def test_details_of_reasoning_go_back_whole_and_in_order(turn: Reply) -> None:
    response, message = await sent_back(turn, user_message("and?"))
    assert response.reasoning == "Let me compute."
    assert message == {"role": "assistant", "content": "so", "reasoning_details": [SIGNED, ENCRYPTED]}


@pytest.mark.parametrize(
    "turn",
    [
        plain(
            {
                "content": "so",
                "extra_content": SIGNATURE,
                "tool_calls": [CALL, {**CALL, "id": "d", "extra_content": OTHER_SIGNATURE}],
            }
        ),
        streamed(
            {"content": "so"}, {"content": "", "extra_content": {"google": {"thought": True}}},
            {"tool_calls": [{"index": 0, **CALL}]},
            {"tool_calls": [{"index": 1, **CALL, "id": "d", "extra_content": OTHER_SIGNATURE}]},
            {"extra_content": SIGNATURE},
        ),
    ],
)  # fmt: skip
async def test_thought_signatures_stand_where_gemini_put_them(turn: Reply) -> None:
    response, message = await sent_back(turn)
    assert [each.id for each in response.tool_calls] == ["c", "d"]
    assert message == {
        "role": "assistant",
        "content": "so",
        "extra_content": SIGNATURE,
        "tool_calls": [CALL, {**CALL, "id": "d", "extra_content": OTHER_SIGNATURE}],
    }


@pytest.mark.parametrize(
    "turn",
    [
        plain({"content": [{"type": "text", "text": "a\u00fc"}, THINKING, {"type": "text", "text": "17"}]}),
        streamed(
            {"content": "a"}, {"content": "\u00fc"},
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm, "}]}]},
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "17?"}]}]},
            {"content": "1"}, {"content": [{"type": "text", "text": "7"}]},
        ),
    ],
)  # fmt: skip
async def test_thinking_parts_go_back_between_the_texts_where_mistral_put_them(turn: Reply) -> None:
    response, message = await sent_back(turn, user_message("and?"))
    assert (response.text, response.reasoning) == ("a\u00fc17", "hm, 17?")
    assert message["content"] == [{"type": "text", "text": "a\u00fc"}, THINKING, {"type": "text", "text": "17"}]
    assert "17?" in (response.items[0].body if response.items else "")
    assert '"17"' not in response.items[0].body, "a text stands in the message alone"


async def test_thinking_streams_as_reasoning() -> None:
    parts: list[AnswerPart] = []
    turn = streamed({"content": [THINKING]}, {"content": [{"type": "text", "text": "17"}]})
    await answer_to(turn, request(listener=parts.append))
    assert "".join(each.reasoning for each in parts) == "hm, 17?"
    assert "".join(each.text for each in parts) == "17"


async def test_a_text_that_a_hook_has_changed_stands_in_place_of_the_models() -> None:
    turn = plain({"content": [THINKING, {"type": "text", "text": "secret"}, {"type": "text", "text": "!"}]})
    _, message = await sent_back(turn, user_message("and?"), changed="[removed]")
    assert message["content"] == [THINKING, {"type": "text", "text": "[removed]"}]
    _, message = await sent_back(turn, user_message("and?"), changed="")
    assert message["content"] == [THINKING]


async def test_a_part_of_an_unknown_kind_goes_back_as_it_came() -> None:
    part = {"type": "reference", "reference_ids": [1, 2]}
    for turn in (
        plain({"content": [{"type": "text", "text": "so"}, part]}),
        streamed({"content": "so"}, {"content": [part]}),
    ):
        response = await answer_to(turn, request(llm=LLM(stream=isinstance(turn.body, tuple))))
        assert response.text == "so"
        assert json.loads(response.items[0].body)["content"] == [{"type": "text", "chars": 2}, part]


async def test_calls_that_got_other_ids_or_were_left_out_keep_each_signature_with_its_call() -> None:
    calls = [{**CALL, "id": "", "extra_content": SIGNATURE}, {**CALL, "id": "", "extra_content": OTHER_SIGNATURE}]
    async with asking(plain({"content": "", "tool_calls": calls}), say("x"), say("x")) as (endpoint, model):
        response = await model(WHOLE)
        named = tuple(replace(each, id=f"own_{at}") for at, each in enumerate(response.tool_calls))
        for kept in (named, named[:1]):
            own = replies(replace(response, tool_calls=kept))
            await model(request(messages=(*REQUEST.messages, *own)))
            sent = (endpoint.requests[-1].body or {})["messages"][2]["tool_calls"]
            signatures = [SIGNATURE, OTHER_SIGNATURE][: len(kept)]
            assert [(each["id"], each["extra_content"]) for each in sent] == [
                (f"own_{at}", each) for at, each in enumerate(signatures)
            ]


async def test_another_route_and_another_api_are_sent_nothing_of_it() -> None:
    body = json.dumps({"reasoning_details": [SIGNED], "reasoning_content": "x", "content": [THINKING]})
    foreign = (
        ProviderItem(route="other", api=API, body=body),
        ProviderItem(route="", api="anthropic", body=body),
        ProviderItem(route="", api=API, body="not JSON"),
        ProviderItem(route="", api=API, body="", digest="0" * 64, size=9),
    )
    answer = Message(role="assistant", content="so", items=foreign)
    async with asking(say("x")) as (endpoint, model):
        await model(request(messages=(*REQUEST.messages, answer, user_message("and?"))))
        assert (endpoint.requests[0].body or {})["messages"][2] == {"role": "assistant", "content": "so"}


async def test_an_answer_with_nothing_of_the_kind_has_no_item() -> None:
    for turn in (
        say("x"),
        plain({"content": [{"type": "text", "text": "x"}]}),
        plain({"content": "x", "reasoning": "y"}),
    ):
        assert (await answer_to(turn, WHOLE)).items == ()


async def test_what_is_too_large_or_no_json_is_named_as_left_out() -> None:
    huge = plain({"content": "x", "reasoning_content": "r" * (TEXT_CHARS_MAX + 1)})
    infinite = Reply(body=str(plain({"content": "x", "extra_content": {"a": float("inf")}}).body))
    for turn in (huge, infinite):
        response = await answer_to(turn, WHOLE)
        assert (response.text, response.items) == ("x", ())
        assert response.dropped == ("reasoning (more than is kept)",)


async def test_without_reported_usage_signed_reasoning_counts_as_well() -> None:
    signed = await answer_to(plain({"content": "x", "reasoning_details": [SIGNED, ENCRYPTED]}), WHOLE)
    simple = await answer_to(plain({"content": "x"}), WHOLE)
    assert signed.usage.output_tokens > simple.usage.output_tokens + 150
    assert signed.usage.estimated_tokens == signed.usage.total_tokens
