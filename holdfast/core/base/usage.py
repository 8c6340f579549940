"""`Usage`: the tokens of a model call; `Prices`: what they cost. Limits are in `budget`. Knows no price table."""

from __future__ import annotations

import operator
from math import ceil
from typing import Final, Self

from pydantic import Field, model_validator

from holdfast.core.base.bounds import PRICE_USD_MAX
from holdfast.core.base.frozen import Frozen, is_none, replace, trusted


class Usage(Frozen):
    """Input and output tokens, as the provider reported them, or upper bounds where it did not. Usages can be added.

    `estimated_tokens` is how many of both together are such bounds. Of the input, `cached_tokens` were read from the
    provider's prompt cache and `cache_write_tokens` written to it; of the output, `reasoning_tokens` were hidden. Parts
    that are larger than their whole are refused; `with_parts` cuts them.
    """

    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    estimated_tokens: int = Field(default=0, ge=0)
    cached_tokens: int = Field(default=0, ge=0, exclude_if=operator.not_)
    cache_write_tokens: int = Field(default=0, ge=0, exclude_if=operator.not_)
    reasoning_tokens: int = Field(default=0, ge=0, exclude_if=operator.not_)

    @model_validator(mode="after")
    def _parts_fit_their_whole(self) -> Self:
        parts = self.cached_tokens + self.cache_write_tokens
        if parts > self.input_tokens or self.reasoning_tokens > self.output_tokens:
            raise ValueError(
                "`cached_tokens` and `cache_write_tokens` are parts of `input_tokens`, and `reasoning_tokens` of"
                " `output_tokens`: no part is larger than its whole; add a provider's parts to the whole where it"
                " reports them beside it"
            )
        return self

    @property
    def total_tokens(self) -> int:
        """Input and output together: what `max_tokens` limits."""
        return self.input_tokens + self.output_tokens

    @property
    def uncached_tokens(self) -> int:
        """The input tokens that were neither read from the provider's prompt cache nor written to it."""
        return self.input_tokens - self.cached_tokens - self.cache_write_tokens

    def with_parts(self, cached: int = 0, cache_write: int = 0, reasoning: int = 0) -> Usage:
        """Return this usage with the parts that a provider reported, each cut to what its whole can hold.

        What is cut is the cheapest part, the tokens read from the cache: no cost is counted too low.
        """
        written = max(0, min(cache_write, self.input_tokens))
        return replace(
            self,
            cached_tokens=max(0, min(cached, self.input_tokens - written)),
            cache_write_tokens=written,
            reasoning_tokens=max(0, min(reasoning, self.output_tokens)),
        )

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
    """What a model's tokens cost, in US dollars per million.

    `cached_usd` is the price of input that is read from the provider's prompt cache, `cache_write_usd` of input that is
    written to it; both are `input_usd` where they are not given.
    """

    input_usd: float = Field(ge=0, le=PRICE_USD_MAX)
    output_usd: float = Field(ge=0, le=PRICE_USD_MAX)
    cached_usd: float | None = Field(default=None, ge=0, le=PRICE_USD_MAX, exclude_if=is_none)
    cache_write_usd: float | None = Field(default=None, ge=0, le=PRICE_USD_MAX, exclude_if=is_none)

    def cost(self, usage: Usage) -> float:
        """Return what `usage` costs, in US dollars, each part of it at its own price.

        Tokens that nobody reported can have been of any part: they cost the dearest price.
        """
        return sum(self._priced(usage).values()) / TOKENS_PRICED

    def cost_by_part(self, usage: Usage) -> dict[str, float]:
        """Return what each part of `usage` costs, in US dollars; `input` is the uncached rest."""
        return {part: priced / TOKENS_PRICED for part, priced in self._priced(usage).items()}

    def _priced(self, usage: Usage) -> dict[str, float]:
        """Return tokens times price of each part."""
        # `estimated_tokens` does not say of which whole they are: they count as input as far as that goes
        estimated = min(usage.estimated_tokens, usage.uncached_tokens)
        dearer = self.dearest_input_usd - self.input_usd
        return {
            "input": usage.uncached_tokens * self.input_usd + estimated * dearer,
            "cached": usage.cached_tokens * self._or_input(self.cached_usd),
            "cache_write": usage.cache_write_tokens * self._or_input(self.cache_write_usd),
            "output": usage.output_tokens * self.output_usd,
        }

    def dearest_input_cost(self, tokens: int) -> float:
        """Return the most that so many tokens of input can cost, in US dollars: what a call reserves for them."""
        return tokens * self.dearest_input_usd / TOKENS_PRICED

    @property
    def dearest_input_usd(self) -> float:
        """The highest price that an input token can have."""
        return max(self.input_usd, self._or_input(self.cached_usd), self._or_input(self.cache_write_usd))

    @property
    def input_weight(self) -> float:
        """How many output tokens an input token is worth at most, at least 1: a limit on tokens counts them alike."""
        return max(1.0, self.dearest_input_usd / self.output_usd) if self.output_usd else 1.0

    def _or_input(self, price: float | None) -> float:
        return self.input_usd if price is None else price


def room_after(room: int | None, failed: Usage, input_weight: float) -> int | None:
    """Return what is left of the `room` for a call's answer after attempts that used `failed`; none when unlimited."""
    if room is None:
        return None
    return room - failed.output_tokens - ceil(failed.input_tokens * input_weight)
