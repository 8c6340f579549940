"""The parts of the usage that providers report, by the real client over HTTP: read, and held within their whole."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.agent.definition import LLM
from holdfast.core.agent.usage_estimates import cut_usage
from holdfast.core.base.usage import Usage
from holdfast.models import ModelRequest
from holdfast.testing import ScriptedModel
from holdfast.testing.script import say
from tests.activities.asking import answer_to, request

STREAMED = request()
PLAIN = request(llm=LLM(model="scripted", stream=False))

OPENAI = {
    "prompt_tokens_details": {"cached_tokens": 800, "cache_write_tokens": 150, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 60, "accepted_prediction_tokens": 0},
}
DEEPSEEK = {"prompt_cache_hit_tokens": 896, "prompt_cache_miss_tokens": 104}


def part(**parts: int) -> Usage:
    return Usage(input_tokens=1_000, output_tokens=100, **parts)


@pytest.mark.parametrize("asked", [STREAMED, PLAIN], ids=["streamed", "plain"])
@pytest.mark.parametrize(
    ("details", "used"),
    [
        (OPENAI, part(cached_tokens=800, cache_write_tokens=150, reasoning_tokens=60)),
        (DEEPSEEK, part(cached_tokens=896)),
        ({"prompt_tokens_details": {"cached_tokens": 0}, **DEEPSEEK}, part()),
        ({"prompt_tokens_details": None, "completion_tokens_details": None}, part()),
        ({"prompt_tokens_details": "none", "completion_tokens_details": [1]}, part()),
        ({"prompt_tokens_details": {"cached_tokens": None, "cache_write_tokens": "7"}}, part()),
        ({"prompt_tokens_details": {"cached_tokens": -5, "cache_write_tokens": -1}}, part()),
        ({"prompt_tokens_details": {"cached_tokens": 10**30}}, part(cached_tokens=1_000)),
        (
            {"prompt_tokens_details": {"cached_tokens": 900, "cache_write_tokens": 900}},
            part(cached_tokens=100, cache_write_tokens=900),
        ),
        ({"completion_tokens_details": {"reasoning_tokens": 10**12}}, part(reasoning_tokens=100)),
        ({"completion_tokens_details": {"reasoning_tokens": True}}, part()),
    ],
)
async def test_the_parts_that_a_provider_reports_are_read_and_fit_their_whole(
    asked: ModelRequest, details: dict[str, Any], used: Usage
) -> None:
    turn = say("x", usage=(1_000, 100), usage_details=details)
    assert (await answer_to(turn, asked)).usage == used
    scripted = await ScriptedModel([turn])(asked)
    assert scripted.usage == used, "without HTTP it is the same"


async def test_parts_of_a_whole_that_was_not_reported_do_not_make_the_bound_cheaper() -> None:
    usage = (await answer_to(say("x", usage=(-1, 100), usage_details=OPENAI))).usage
    assert (usage.cached_tokens, usage.cache_write_tokens, usage.reasoning_tokens) == (0, 0, 60)
    assert usage.estimated_tokens == usage.input_tokens > 0
    usage = (await answer_to(say("x", usage=(1_000, -1), usage_details=OPENAI))).usage
    assert (usage.cached_tokens, usage.cache_write_tokens, usage.reasoning_tokens) == (800, 150, 0)
    assert (usage.input_tokens, usage.estimated_tokens) == (1_000, usage.output_tokens)


def test_an_attempt_cut_after_its_report_keeps_the_parts_of_its_input() -> None:
    told = Usage(input_tokens=1_000, output_tokens=5, cached_tokens=800, cache_write_tokens=150, reasoning_tokens=4)
    cut = cut_usage(told, lambda: 9_999, 128, None)
    assert cut == told + Usage(output_tokens=128, estimated_tokens=128)
    assert cut_usage(None, lambda: 1_000, 128, None).cached_tokens == 0
