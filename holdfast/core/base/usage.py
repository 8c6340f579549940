"""`Usage`: the tokens of a model call; `Prices`: what they cost. Limits are in `budget`. Knows no price table."""

from __future__ import annotations

import operator
from math import ceil
from typing import Final

from pydantic import Field

from holdfast.core.base.bounds import PRICE_USD_MAX
from holdfast.core.base.frozen import Frozen, trusted


class Usage(Frozen):
    """Input and output tokens, as the provider reported them, or upper bounds where it did not. Usages can be added.

    `estimated_tokens` is how many of both together are such bounds. Of the input, `cached_tokens` were read from the
    provider's prompt cache and `cache_write_tokens` written to it; of the output, `reasoning_tokens` were hidden.
    """

    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    estimated_tokens: int = Field(default=0, ge=0)
    cached_tokens: int = Field(default=0, ge=0, exclude_if=operator.not_)
    cache_write_tokens: int = Field(default=0, ge=0, exclude_if=operator.not_)
    reasoning_tokens: int = Field(default=0, ge=0, exclude_if=operator.not_)

    @property
    def total_tokens(self) -> int:
        """Input and output together: what `max_tokens` limits."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        if not (other.input_tokens or other.output_tokens):
            return self
        return trusted(
            Usage,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            estimated_tokens=self.estimated_tokens + other.estimated_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


NOTHING_USED: Final = Usage()
"""No tokens at all."""

TOKENS_PRICED: Final = 1_000_000
"""Prices are given per this many tokens."""


class Prices(Frozen):
    """What a model's tokens cost, in US dollars per million."""

    input_usd: float = Field(ge=0, le=PRICE_USD_MAX)
    output_usd: float = Field(ge=0, le=PRICE_USD_MAX)

    def cost(self, usage: Usage) -> float:
        """Return what `usage` costs, in US dollars."""
        return (usage.input_tokens * self.input_usd + usage.output_tokens * self.output_usd) / TOKENS_PRICED

    @property
    def input_weight(self) -> float:
        """How many output tokens an input token is worth, at least 1: a limit on tokens counts them alike."""
        return max(1.0, self.input_usd / self.output_usd) if self.output_usd else 1.0


def room_after(room: int | None, failed: Usage, input_weight: float) -> int | None:
    """Return what is left of the `room` for a call's answer after attempts that used `failed`; none when unlimited."""
    if room is None:
        return None
    return room - failed.output_tokens - ceil(failed.input_tokens * input_weight)
