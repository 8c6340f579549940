"""What an attempt at a real HTTP endpoint counts that brings no answer: whatever may be billed, and nothing else."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from holdfast.core.agent.model import AnswerPart, ModelRequest
from holdfast.core.agent.token_bounds import request_tokens
from holdfast.core.agent.usage_estimates import CUT_TOKENS_MAX, HIDDEN_TOKENS_MAX
from holdfast.core.base.errors import ModelFailure
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.models import OpenAIChat, ProviderSettings
from holdfast.runtime.model_progress import Progress
from holdfast.testing.holds import Hold
from holdfast.testing.openai_server import FakeOpenAI
from holdfast.testing.script import Reply, call, say
from tests.activities.asking import asking, request

WORDS = "Some words of an answer."
PIECES_MAX = 3
"""What opens the answer, and two of its pieces."""


async def counted(model: OpenAIChat, asked: ModelRequest) -> Usage:
    """Return what an attempt counts that fails."""
    progress = Progress()
    asked = request(llm=asked.llm, listener=progress.add, max_output_tokens=asked.max_output_tokens)
    progress.begin(asked)
    try:
        await model(asked)
    except ModelFailure as failure:
        return progress.fail(failure.usage, free=failure.free)
    raise AssertionError("the attempt should fail")


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 502, 503, 529])
async def test_a_refusal_that_nobody_bills_counts_nothing(status: int) -> None:
    async with asking(Reply(status=status, text="no")) as (_, model):
        assert await counted(model, request()) == NOTHING_USED


@pytest.mark.parametrize("turn", [Reply(status=408), Reply(status=504), Reply(status=400, text="content_filter")])
async def test_a_refusal_after_work_was_done_counts_what_was_sent(turn: Reply) -> None:
    async with asking(turn) as (_, model):
        used = await counted(model, request())
    assert used.input_tokens == request_tokens(request())
    assert used.estimated_tokens == used.total_tokens


async def test_an_endpoint_that_was_not_reached_counts_nothing() -> None:
    async with FakeOpenAI([]) as gone:
        pass
    model = OpenAIChat(ProviderSettings(base_url=gone.base_url, api_key="any", model="m"))
    try:
        assert await counted(model, request()) == NOTHING_USED
    finally:
        await model.close()


@pytest.mark.parametrize(
    "turn",
    [
        say(WORDS, piece_chars=6, pieces_max=PIECES_MAX),
        say(WORDS, piece_chars=6, pieces_max=PIECES_MAX, disconnect=True),
        say(WORDS, piece_chars=6, pieces_max=PIECES_MAX, then=b'data: {"error": {"code": 500}}\n\n'),
    ],
    ids=["closed", "disconnected", "error"],
)
async def test_a_cut_stream_counts_what_was_sent_and_what_came(turn: Reply) -> None:
    async with asking(turn) as (_, model):
        used = await counted(model, request())
    assert used.input_tokens == request_tokens(request())
    assert 12 + CUT_TOKENS_MAX <= used.output_tokens <= 12 + 2 * CUT_TOKENS_MAX
    assert used.estimated_tokens == used.total_tokens


async def test_arguments_of_calls_that_came_count_as_well() -> None:
    turn = call("note", text="é" * 400)
    async with asking(Reply(calls=turn.calls, piece_chars=400, pieces_max=3)) as (_, model):
        used = await counted(model, request())
    assert used.output_tokens >= 400 + CUT_TOKENS_MAX


async def test_an_answer_that_comes_at_once_counts_all_that_it_may_have_been() -> None:
    async with asking(say(WORDS, disconnect=True)) as (_, model):
        plain = request().llm.model_copy(update={"stream": False})
        assert (await counted(model, request(llm=plain))).output_tokens == HIDDEN_TOKENS_MAX
        assert (await counted(model, request(llm=plain, max_output_tokens=77))).output_tokens == 77


async def test_a_cancelled_call_counts_what_had_come() -> None:
    hold = Hold()
    async with asking(say(WORDS, piece_chars=6, pieces_max=PIECES_MAX, hold=hold)) as (_, model):
        progress, heard = Progress(), asyncio.Event()

        def listen(part: AnswerPart) -> None:
            progress.add(part)
            if (partial := progress.partial()) is not None and len(partial.text) == 12:
                heard.set()

        asked = request(listener=listen)
        progress.begin(asked)
        answer = asyncio.create_task(model(asked))
        await heard.wait()
        answer.cancel()
        with suppress(asyncio.CancelledError):
            await answer
        hold.release()
    partial = progress.partial()
    assert partial is not None
    assert partial.usage.input_tokens == request_tokens(request())
    assert partial.usage.output_tokens == 12 + CUT_TOKENS_MAX
    assert partial.usage.estimated_tokens == partial.usage.total_tokens
