"""How long an answer an endpoint allows, as its own refusals say: `StatedLimits`. Sends nothing.

Every call has an output bound (docs/spec.md, 5.15), and few endpoints say theirs before it is passed. Many refuse a
bound above the model's own, vLLM one that does not fit into the context beside the prompt. Such a refusal names the
limit, before any work is done, and the call is made again with less: never with more than was allowed.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.core.conversation.steps import InferenceResponse
from holdfast.models.http_errors import ErrorStatus

LIMIT_STATUS: Final = frozenset({400, 413, 416, 422})
"""With which statuses endpoints refuse a request whose answer may be too long."""

MODELS_MAX: Final = 64
"""Of how many models the limits are remembered."""

LOWERED_MAX: Final = 5
"""How often one call's bound is lowered: some servers say only that it is too much, not what fits."""

OUTPUT_LEFT_MIN: Final = 256
"""With less room than this for an answer, in tokens, a context counts as full."""

WORDS_CHARS_MAX: Final = 4_000
"""How much of a refusal is read; those that name a limit are a sentence or two."""

_ABOUT_OUTPUT: Final = re.compile(
    r"max_(?:completion_|output_|new_)?tokens|in the completion|for the completion|output"
)

_MAXIMUM: Final = re.compile(
    r"at most (\d+) (?:completion|output) tokens"  # OpenAI
    r"|range of max_tokens (?:is|should be) \[\d+, (\d+)\]"  # DeepSeek, Qwen
    r"|less than or equal to `?(\d+)"  # Groq
    r"|expected a value <= (\d+)"  # Doubao, OpenAI's newer models
    r"|> (\d+), which is the maximum allowed number of output tokens"  # Anthropic
)
"""The model's longest answer, in the words of several APIs."""

_WINDOW: Final = re.compile(
    r"maximum context length is (\d+)"  # OpenAI, vLLM
    r"|max_model_len=(?:max_total_tokens=)?(\d+)"  # vLLM, some versions
    r"|max_new_tokens` must be <= (\d+)"  # text-generation-inference
)
"""The model's context window."""

_INPUT: Final = re.compile(r"your request has (\d+) input tokens|given: (\d+) `inputs`")
"""What the prompt takes of it."""

_REQUESTED: Final = re.compile(r"requested (\d+) tokens \([^)]*?(\d+) (?:in|for) the completion\)")
"""What prompt and bound take together, and the bound."""


class StatedLimits:
    """The limits that one endpoint's refusals have named, by model."""

    def __init__(self) -> None:
        self._maxima: dict[str, int] = {}
        self._windows: dict[str, int] = {}

    def first(self, model: str, wanted: int | None, input_max: Callable[[], int]) -> int | None:
        """Return the bound to begin with, in tokens: `wanted`, or less where an earlier refusal said so.

        Of a known window an answer has what the input leaves for certain, and half of it at least.
        """
        if wanted is None:
            return None
        bound, window = min(wanted, self._maxima.get(model, wanted)), self._windows.get(model)
        return bound if window is None else max(1, min(bound, max(window - input_max(), window // 2)))

    async def answer(
        self, model: str, bound: int | None, ask: Callable[[int | None], Awaitable[InferenceResponse]]
    ) -> InferenceResponse:
        """Return the answer of `ask` to `bound`, or to what a refusal allows instead: those cost nothing.

        Raises as `ask` does.
        """
        for _ in range(LOWERED_MAX):
            try:
                return await ask(bound)
            except ErrorStatus as error:
                lower = self.lowered(model, bound, error.words) if error.status in LIMIT_STATUS else None
                if lower is None:
                    raise
                bound = lower
        return await ask(bound)

    def lowered(self, model: str, sent: int | None, refusal: str) -> int | None:
        """Return the bound to try instead of `sent`, which was refused with those words.

        None where the refusal is about something else, or the prompt leaves no room.
        """
        words = refusal[:WORDS_CHARS_MAX].lower()
        if sent is None or not _ABOUT_OUTPUT.search(words):
            return None
        if maximum := _number(_MAXIMUM, words):
            _remember(self._maxima, model, maximum)
            return maximum if maximum < sent else None
        window = _number(_WINDOW, words)
        if window is None:
            return None
        _remember(self._windows, model, window)
        left = _left(words, window, sent)
        return left if min(OUTPUT_LEFT_MIN, sent) <= left < sent else None


def _left(words: str, window: int, sent: int) -> int:
    """Return what the prompt leaves of the window, or half of what was sent where the refusal does not say."""
    if (given := _number(_INPUT, words)) is not None:
        return window - given
    if requested := _REQUESTED.search(words):
        return window - (int(requested[1]) - int(requested[2]))
    return min(sent // 2, window // 2)  # newer vLLM counts a prompt no further than to know that it is too much


def _number(pattern: re.Pattern[str], words: str) -> int | None:
    match = pattern.search(words)
    return None if match is None else next(int(group[:9]) for group in match.groups() if group is not None)


def _remember(limits: dict[str, int], model: str, limit: int) -> None:
    limits.pop(model, None)
    limits[model] = limit
    if len(limits) > MODELS_MAX:
        del limits[next(iter(limits))]
