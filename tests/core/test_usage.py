"""Token counts add up and are never negative."""

from __future__ import annotations

import pytest
from hypothesis import given
from pydantic import ValidationError

from holdfast.core.usage import Usage
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
