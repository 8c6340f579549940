"""Bounds of answers that an endpoint refuses: what it says that it allows is sent, and never more."""

from __future__ import annotations

import pytest

from holdfast.core.base.errors import ModelFailure
from holdfast.models.output_limits import LOWERED_MAX, MODELS_MAX, StatedLimits
from holdfast.testing.script import Reply, say
from tests.activities.asking import asking, request

OPENAI = (
    "max_tokens is too large: 16384. This model supports at most 4096 completion tokens, whereas you provided 16384."
)
VLLM = (
    "This model's maximum context length is 8192 tokens. However, you requested {} tokens ({} in the messages, {} in "
    "the completion). Please reduce the length of the messages or completion."
)
VLLM_LATER = (
    "'max_tokens' or 'max_completion_tokens' is too large: 16384. This model's maximum context length is 4096 tokens "
    "and your request has 16 input tokens (16384 > 4096 - 16)."
)
VLLM_LATEST = (
    "This model's maximum context length is 8192 tokens. However, you requested {} output tokens and your prompt "
    "contains at least {} input tokens, for a total of at least 8193 tokens."
)


def refused(text: str) -> Reply:
    return Reply(status=400, text=text)


async def bounds_of(*refusals: str, calls: int = 1, wanted: int = 16_384) -> list[int]:
    """Return the bounds that went out in so many calls of one model, the first of which meets the refusals."""
    turn = say("x", failures=tuple(map(refused, refusals)))
    async with asking(turn) as (endpoint, model):
        for _ in range(calls):
            assert (await model(request(max_output_tokens=wanted))).text == "x"
        return [each.body["max_completion_tokens"] for each in endpoint.requests]


async def test_a_refusal_that_names_the_longest_answer_is_followed_and_remembered() -> None:
    assert await bounds_of(OPENAI, calls=2) == [16_384, 4_096, 4_096]


async def test_what_the_prompt_leaves_of_the_context_is_sent() -> None:
    text = VLLM.format(16_484, 100, 16_384)
    assert (await bounds_of(text))[1] == 8_092
    assert (await bounds_of(VLLM_LATER))[1] == 4_080


async def test_a_bound_is_halved_where_the_refusal_does_not_say_what_fits() -> None:
    texts = (VLLM_LATEST.format(16_384, 1), VLLM_LATEST.format(4_096, 4_097))
    assert await bounds_of(*texts) == [16_384, 4_096, 2_048]


async def test_of_a_known_context_a_later_call_takes_what_its_input_leaves_for_certain() -> None:
    later = (await bounds_of(VLLM.format(16_484, 100, 16_384), calls=2))[2]
    assert 8_192 // 2 <= later < 8_192


async def test_a_prompt_that_fills_the_context_is_too_long() -> None:
    async with asking(refused(VLLM.format(24_384, 8_000, 16_384))) as (endpoint, model):
        with pytest.raises(ModelFailure) as failure:
            await model(request(max_output_tokens=16_384))
        assert len(endpoint.requests) == 1
    assert (failure.value.kind, failure.value.again) == ("ContextTooLong", False)


async def test_a_server_that_refuses_every_bound_is_asked_only_so_often() -> None:
    async with asking(refused(VLLM_LATEST.format(1, 1))) as (endpoint, model):
        with pytest.raises(ModelFailure):
            await model(request(max_output_tokens=10**9))
        assert len(endpoint.requests) <= LOWERED_MAX + 1


async def test_a_refusal_about_something_else_is_one() -> None:
    async with asking(refused("temperature must be less than or equal to 1")) as (endpoint, model):
        with pytest.raises(ModelFailure):
            await model(request(max_output_tokens=100))
        assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("words", "maximum"),
    [
        (OPENAI, 4_096),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8_192),
        ("InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]", 8_192),
        ("`max_completion_tokens` must be less than or equal to `8192`, the maximum value", 8_192),
        ("`max_completion_tokens`: integer above maximum value, expected a value <= 12288, but got 16384", 12_288),
        ("max_tokens: 16384 > 8192, which is the maximum allowed number of output tokens for claude-x", 8_192),
        ("`inputs` tokens + `max_new_tokens` must be <= 8193. Given: 93 `inputs` tokens and 16384", 8_100),
        ("max_tokens=16384 cannot be greater than max_model_len=max_total_tokens=4096.", 2_048),
        ("the output is not what you think", None),
        ("x" * 10**6, None),
    ],
)
def test_the_words_of_several_servers_are_read(words: str, maximum: int | None) -> None:
    assert StatedLimits().lowered("m", 16_384, words) == maximum


def test_a_bound_is_never_raised() -> None:
    limits = StatedLimits()
    assert limits.lowered("m", 100, OPENAI) is None
    assert limits.first("m", 100, lambda: 10) == 100
    assert limits.first("m", 5_000, lambda: 10) == 4_096
    assert limits.first("m", None, lambda: 10) is None
    assert limits.lowered("m", None, OPENAI) is None


def test_only_so_many_models_are_remembered() -> None:
    limits = StatedLimits()
    for number in range(MODELS_MAX + 1):
        limits.lowered(f"m{number}", 16_384, OPENAI)
    assert limits.first("m0", 16_384, lambda: 10) == 16_384
    assert limits.first(f"m{MODELS_MAX}", 16_384, lambda: 10) == 4_096
