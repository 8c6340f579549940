"""Upper bounds for what a model call used where its endpoint does not report it (docs/spec.md, section 5).

An attempt that reached the endpoint is billed, whether or not it came to its end. Its input is bounded by what was sent
(`token_bounds`), its output by the bytes that came of it and by what it was allowed to put out. Both are marked as
estimated; what the endpoint did report is never replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from holdfast.core.agent.model import ModelRequest
from holdfast.core.agent.token_bounds import request_tokens
from holdfast.core.base.usage import Usage

CUT_TOKENS_MAX: Final = 128
"""What an endpoint can have made of an answer beyond what had come of it when it was cut: half a second of a model."""

HEARTBEAT_TOKENS_MAX: Final = 2_048
"""What can come of an answer after the last heartbeat of a worker that is lost."""

HIDDEN_TOKENS_MAX: Final = 16_384
"""What an answer counts of which nothing could be seen when it was cut, where nothing limited it."""


def input_bound(request: ModelRequest) -> int:
    """Return the most tokens that the input of `request` can have, as counted before or anew."""
    return request_tokens(request) if request.input_max is None else request.input_max


def answered_usage(
    prompt: int | None,
    completion: int | None,
    input_max: Callable[[], int],
    received_bytes: int,
    output_max: int | None,
) -> Usage:
    """Return what a complete answer used; what was not reported is none.

    Zero counts as not reported: always for the prompt, for the completion where `received_bytes` of it came.
    """
    sent = prompt or input_max()
    received = completion or _at_most(received_bytes, output_max)
    estimated = (0 if prompt else sent) + (0 if completion else received)
    return Usage(input_tokens=sent, output_tokens=received, estimated_tokens=estimated)


def cut_usage(reported: Usage | None, input_max: Callable[[], int], more: int, output_max: int | None) -> Usage:
    """Return what an attempt counts that did not come to its end.

    `more` is how many tokens it can have put out since the endpoint `reported`, `output_max` how many it was allowed in
    all.
    """
    told_input, told_output = (reported.input_tokens, reported.output_tokens) if reported else (0, 0)
    sent = told_input or input_max()
    output = max(told_output, _at_most(told_output + more, output_max))
    estimated = (0 if told_input else sent) + output - told_output
    return Usage(input_tokens=sent, output_tokens=output, estimated_tokens=estimated)


def hidden_tokens(output_max: int | None) -> int:
    """Return how many tokens an unseen answer can have: all that it was allowed, where something limited it."""
    return HIDDEN_TOKENS_MAX if output_max is None else output_max


def _at_most(tokens: int, output_max: int | None) -> int:
    return tokens if output_max is None else min(tokens, output_max)
