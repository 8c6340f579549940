"""Upper bounds for what a model call used where its endpoint does not report it (docs/spec.md, section 5).

An attempt that reached the endpoint is billed, finished or not. Its input is bounded by what was sent (`token_bounds`),
its output by the bytes received and by its output limit. Both are marked as estimated; figures that the endpoint did
report are never replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from holdfast.core.agent.model import ModelRequest
from holdfast.core.agent.token_bounds import request_tokens
from holdfast.core.base.bounds import OUTPUT_TOKENS_MAX
from holdfast.core.base.usage import NOTHING_USED, Usage

CUT_TOKENS_MAX: Final = 128
"""How many tokens a model can have produced beyond those received when its answer was cut: half a second's worth."""

HEARTBEAT_TOKENS_MAX: Final = 2_048
"""How many tokens can arrive after the last heartbeat of a worker that is lost."""

HIDDEN_TOKENS_MAX: Final = OUTPUT_TOKENS_MAX
"""What a cut answer counts when nothing of it was visible and nothing limited it."""


def input_bound(request: ModelRequest) -> int:
    """Return the most tokens that the input of `request` can have, as counted before or anew."""
    return request_tokens(request) if request.input_max is None else request.input_max


def answered_usage(
    reported: Usage | None, input_max: Callable[[], int], received_bytes: int, output_max: int | None
) -> Usage:
    """Return what a complete answer used, as its endpoint `reported`, else as an upper bound.

    Zero counts as not reported: always for the input, and for the output where `received_bytes` of it came.
    """
    known = reported or NOTHING_USED
    input_tokens = known.input_tokens or input_max()
    output_tokens = known.output_tokens or _at_most(received_bytes, output_max)
    estimated = (0 if known.input_tokens else input_tokens) + (0 if known.output_tokens else output_tokens)
    used = Usage(input_tokens=input_tokens, output_tokens=output_tokens, estimated_tokens=estimated)
    # reported parts fit what was reported: those of a whole that was not are 0, and make no bound cheaper
    return used.with_parts(known.cached_tokens, known.cache_write_tokens, known.reasoning_tokens)


def cut_usage(reported: Usage | None, input_max: Callable[[], int], more: int, output_max: int | None) -> Usage:
    """Return what an interrupted attempt counts.

    `more` is how many tokens it can have produced since the endpoint `reported`, `output_max` how many it was allowed
    in all.
    """
    reported_input, reported_output = (reported.input_tokens, reported.output_tokens) if reported else (0, 0)
    input_tokens = reported_input or input_max()
    output_tokens = max(reported_output, _at_most(reported_output + more, output_max))
    estimated = (0 if reported_input else input_tokens) + output_tokens - reported_output
    used = Usage(input_tokens=input_tokens, output_tokens=output_tokens, estimated_tokens=estimated)
    if reported is None or not reported_input:
        return used
    return used.with_parts(reported.cached_tokens, reported.cache_write_tokens, reported.reasoning_tokens)


def hidden_tokens(output_max: int | None) -> int:
    """Return how many tokens an unseen answer can have: all that it was allowed, where something limited it."""
    return HIDDEN_TOKENS_MAX if output_max is None else output_max


def _at_most(tokens: int, output_max: int | None) -> int:
    return tokens if output_max is None else min(tokens, output_max)
