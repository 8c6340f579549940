"""Calls of Anthropic's own tools that have no result yet, over the real client: nothing goes back that is refused."""

from __future__ import annotations

from typing import Any, Final

import pytest

from holdfast.core.agent.definition import LLM
from holdfast.core.conversation.messages import Message, user_message
from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.anthropic.conversation import EMPTY
from holdfast.testing.anthropic_wire_format import event_bytes, events_of, signature
from holdfast.testing.script import Call, Reply, say
from tests.activities.asking import request, schema
from tests.models.anthropic_asking import answer_to, asking, said

SEARCH: Final = LLM.model_validate({"server_tools": ["web_search"]})
BOTH: Final = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
CALL: Final[dict[str, Any]] = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "ships"},
}
PAGE: Final = {"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": signature("t")}
FOUND: Final = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [PAGE]}
BESIDE: Final = Reply(blocks=(CALL,), calls=(Call("look", {"at": "1"}, id="toolu_1"),))
"""A search beside a call of the agent's tool: the API makes it with the next request."""


def result(text: str = "there") -> Message:
    return Message(role="tool", content=text, tool_call_id="toolu_1")


async def sent(*turns: tuple[Reply, tuple[Message, ...]], llm: LLM = SEARCH, last: LLM | None = None) -> list[Any]:
    """Return the turns of the last request, where each reply is answered by the messages beside it."""
    replies = (*(reply for reply, _ in turns), say("So."))
    async with asking(*replies) as (endpoint, model):
        messages = [*request().messages]
        for _, after in turns:
            answer = await model(request(llm=llm, messages=tuple(messages), tools=(schema("look"),)))
            messages += [said(answer), *after]
        answer = await model(request(llm=last or llm, messages=tuple(messages), tools=(schema("look"),)))
        assert answer.text == "So."
        return list(endpoint.requests[-1].body["messages"])


def kinds(turn: Any) -> list[str]:  # noqa: ANN401  # any JSON value
    return [block["type"] for block in turn["content"]]


@BOTH
@pytest.mark.parametrize("ending", ["pause_turn", "max_tokens", "model_context_window_exceeded"])
@pytest.mark.parametrize("thought", [None, "I look."], ids=["bare", "thinking"])
async def test_a_call_that_an_answers_end_left_without_result_stays_out(
    ending: str, thought: str | None, *, stream: bool
) -> None:
    llm = LLM.model_validate({"server_tools": ["web_search"], "stream": stream})
    _, answer, asked = await sent(
        (Reply(reasoning=thought, blocks=(CALL,), finish_reason=ending), (user_message("And?"),)), llm=llm
    )
    assert kinds(answer) == [*(["thinking"] if thought else []), "text"]
    assert answer["content"][-1]["text"] == EMPTY
    assert asked["content"][0]["text"] == "And?"


async def test_calls_that_have_their_results_stay_where_one_that_has_none_goes() -> None:
    open_call = {**CALL, "id": "srvtoolu_2"}
    _, answer, _ = await sent(
        (Reply(text="x", blocks=(CALL, FOUND, open_call), finish_reason="pause_turn"), (user_message("And?"),))
    )
    assert kinds(answer) == ["server_tool_use", "web_search_tool_result", "text"]


@BOTH
async def test_a_call_beside_the_agents_own_waits_for_their_results_alone(*, stream: bool) -> None:
    llm = LLM.model_validate({"server_tools": ["web_search"], "stream": stream})
    waiting = await sent((BESIDE, (result(),)), llm=llm)
    assert kinds(waiting[1]) == ["server_tool_use", "tool_use"]
    done = await sent((BESIDE, (result(),)), (say("Two.", blocks=(FOUND,)), (user_message("And?"),)), llm=llm)
    assert [kinds(turn) for turn in done[1:4]] == [
        ["server_tool_use", "tool_use"],
        ["tool_result"],
        ["web_search_tool_result", "text"],
    ]


async def test_a_call_that_waits_is_left_out_where_the_user_has_spoken_or_the_tool_is_gone() -> None:
    spoken = await sent((BESIDE, (result(), user_message("Stop that."))))
    assert [kinds(turn) for turn in spoken[1:]] == [["tool_use"], ["tool_result", "text"]]
    gone = await sent((BESIDE, (result(),)), last=LLM())
    assert [kinds(turn) for turn in gone[1:]] == [["tool_use"], ["tool_result"]]


async def test_a_result_whose_call_a_summary_took_away_is_left_out() -> None:
    async with asking(BESIDE, say("Two.", blocks=(FOUND,)), say("So.")) as (endpoint, model):
        asked = request(llm=SEARCH, tools=(schema("look"),))
        first = await model(asked)
        second = await model(
            request(llm=SEARCH, tools=(schema("look"),), messages=(*asked.messages, said(first), result()))
        )
        kept = (user_message("A summary."), said(second), user_message("And?"))
        await model(request(llm=SEARCH, tools=(schema("look"),), messages=kept))
        assert kinds(endpoint.requests[-1].body["messages"][1]) == ["text"]


async def cut_within(text: str, stop: str) -> InferenceResponse:
    """Return the answer to a stream whose search has no more than `text` for its input."""
    events = list(
        events_of(say("x", blocks=(CALL,), finish_reason=stop), {"model": "m", "messages": [], "stream": True})
    )
    first = next(event for event in events if event.get("delta", {}).get("type") == "input_json_delta")
    rest = [event for event in events if event is first or event.get("delta", {}).get("type") != "input_json_delta"]
    first["delta"]["partial_json"] = text
    return await answer_to(Reply(body=b"".join(map(event_bytes, rest))), request(llm=SEARCH))


async def test_a_call_that_was_cut_within_its_input_costs_no_second_answer() -> None:
    answer = await cut_within('{"query": "sh', "max_tokens")
    assert (answer.text, answer.finish_reason) == ("x", "length")
    assert (answer.server_tool_calls, answer.items) == ({}, ())
