"""Token counts add up and are never negative; parts fit their whole and have prices of their own."""

from __future__ import annotations

import pytest
from hypothesis import given
from pydantic import ValidationError

from holdfast.core.base.bounds import PRICE_USD_MAX
from holdfast.core.base.usage import NOTHING_USED, Prices, Usage
from tests.core.strategies import usages


@given(usages, usages)
def test_the_total_of_a_sum_is_the_sum_of_the_totals(one: Usage, other: Usage) -> None:
    assert (one + other).total_tokens == one.total_tokens + other.total_tokens
    assert one + other == other + one
    assert one + Usage() == one


@pytest.mark.parametrize("field", ["input_tokens", "output_tokens"])
def test_negative_counts_are_refused(field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        Usage.model_validate({field: -1})


@pytest.mark.parametrize("price", [-0.1, PRICE_USD_MAX + 1, 1e308, float("inf"), float("nan")])
@pytest.mark.parametrize("field", ["input_usd", "output_usd", "cached_usd", "cache_write_usd"])
def test_a_price_beyond_reason_is_refused(field: str, price: float) -> None:
    with pytest.raises(ValidationError, match=field):
        Prices.model_validate({"input_usd": 1, "output_usd": 1, field: price})


def test_the_highest_price_of_very_many_tokens_is_still_a_number() -> None:
    prices = Prices(input_usd=PRICE_USD_MAX, output_usd=PRICE_USD_MAX)
    assert prices.cost(Usage(input_tokens=10**15)) == 1e15


CLAUDE = Prices(input_usd=3, output_usd=15, cached_usd=0.3, cache_write_usd=3.75)


@pytest.mark.parametrize(
    "parts",
    [
        {"input_tokens": 10, "cached_tokens": 11},
        {"input_tokens": 10, "cached_tokens": 6, "cache_write_tokens": 5},
        {"output_tokens": 10, "reasoning_tokens": 11},
        {"cached_tokens": 1},
    ],
)
def test_a_part_larger_than_its_whole_is_refused_with_the_remedy(parts: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match="no part is larger than its whole; add a provider's parts to the whole"):
        Usage.model_validate(parts)


def test_parts_that_a_provider_reports_are_cut_to_what_their_whole_can_hold() -> None:
    used = Usage(input_tokens=100, output_tokens=10)
    assert used.with_parts(cached=10**12, cache_write=30, reasoning=11) == Usage(
        input_tokens=100, output_tokens=10, cached_tokens=70, cache_write_tokens=30, reasoning_tokens=10
    )
    assert used.with_parts(cached=-5, cache_write=-1, reasoning=-1) == used
    assert NOTHING_USED.with_parts(cached=5, cache_write=5, reasoning=5) == NOTHING_USED


def test_each_part_costs_its_own_price_to_the_cent() -> None:
    used = Usage(
        input_tokens=1_000_000,
        output_tokens=100_000,
        cached_tokens=800_000,
        cache_write_tokens=150_000,
        reasoning_tokens=60_000,
    )
    by_hand = {"input": 0.15, "cached": 0.24, "cache_write": 0.5625, "output": 1.5}
    assert CLAUDE.cost_by_part(used) == pytest.approx(by_hand)
    assert CLAUDE.cost(used) == pytest.approx(2.4525)


def test_without_prices_for_the_cache_every_input_token_costs_the_same() -> None:
    used = Usage(input_tokens=1_000, output_tokens=100, cached_tokens=900, cache_write_tokens=100)
    assert Prices(input_usd=3, output_usd=15).cost(used) == pytest.approx(0.0045)


@given(usages, usages)
def test_what_is_reserved_for_an_input_covers_every_division_of_it(used: Usage, other: Usage) -> None:
    for prices in (CLAUDE, Prices(input_usd=1, output_usd=8, cached_usd=0.1), Prices(input_usd=2, output_usd=2)):
        reserved = prices.dearest_input_cost(used.input_tokens) + prices.cost(Usage(output_tokens=used.output_tokens))
        assert prices.cost(used) <= reserved * (1 + 1e-12)
        together = prices.cost(used) + prices.cost(other)
        assert prices.cost(used + other) == pytest.approx(together, rel=1e-9)


def test_tokens_that_nobody_reported_cost_the_dearest_price() -> None:
    assert CLAUDE.cost(Usage(input_tokens=1_000_000, estimated_tokens=1_000_000)) == pytest.approx(3.75)
    half = Usage(input_tokens=1_000_000, cached_tokens=500_000, estimated_tokens=10**9)
    assert CLAUDE.cost(half) == pytest.approx(0.15 + 1.875)
    assert CLAUDE.input_weight == 1.0
    assert Prices(input_usd=8, output_usd=5, cache_write_usd=10).input_weight == 2


def test_usage_and_prices_of_an_older_version_read_and_write_as_they_did() -> None:
    older = {"input_tokens": 7, "output_tokens": 3, "estimated_tokens": 0}
    assert Usage.model_validate(older).model_dump() == older
    assert Prices.model_validate({"input_usd": 1.0, "output_usd": 2.0}).model_dump() == {
        "input_usd": 1.0,
        "output_usd": 2.0,
    }
