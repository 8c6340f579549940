"""Token counts add up and are never negative."""

from __future__ import annotations

import pytest
from hypothesis import given
from pydantic import ValidationError

from holdfast.core.base.bounds import PRICE_USD_MAX
from holdfast.core.base.usage import Prices, Usage
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
@pytest.mark.parametrize("field", ["input_usd", "output_usd"])
def test_a_price_beyond_reason_is_refused(field: str, price: float) -> None:
    with pytest.raises(ValidationError, match=field):
        Prices.model_validate({"input_usd": 1, "output_usd": 1, field: price})


def test_the_highest_price_of_very_many_tokens_is_still_a_number() -> None:
    prices = Prices(input_usd=PRICE_USD_MAX, output_usd=PRICE_USD_MAX)
    assert prices.cost(Usage(input_tokens=10**15)) == 1e15
