"""How long a failed call is waited for: the clock ends a model call, no number of attempts does."""

from __future__ import annotations

import pytest

from holdfast.core.base.retries import MODEL_BACK_OFF, MODEL_PATIENCE_SECONDS, NAMED_WAITS_MAX, next_wait_seconds

DAY = 24 * 3_600.0


def waits(patience: float, named: float | None = None) -> list[float]:
    """Return the waits of a model call whose every attempt fails at once."""
    told: list[float] = []
    waited = 0.0
    while (wait := next_wait_seconds(len(told) + 1, named, waited, patience)) is not None:
        told.append(wait)
        waited += wait
    return told


def test_waits_double_up_to_a_bound_and_the_last_attempt_comes_at_the_end_of_patience() -> None:
    told = waits(MODEL_PATIENCE_SECONDS)
    assert told[:8] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert max(told) == MODEL_BACK_OFF.longest_seconds
    assert sum(told) == MODEL_PATIENCE_SECONDS


def test_no_number_of_attempts_ends_a_call() -> None:
    assert len(waits(DAY)) > DAY / MODEL_BACK_OFF.longest_seconds
    assert MODEL_BACK_OFF.wait_seconds(10**9) == MODEL_BACK_OFF.longest_seconds


def test_without_patience_the_first_failure_counts() -> None:
    assert next_wait_seconds(1, 0.0, 0.0, 0.0) is None


@pytest.mark.parametrize("named", [0.0, 0.25])
def test_an_endpoint_that_always_says_at_once_is_soon_asked_as_rarely_as_any_other(named: float) -> None:
    told = waits(MODEL_PATIENCE_SECONDS, named)
    assert told[: NAMED_WAITS_MAX + 1] == [named] * NAMED_WAITS_MAX + [16]
    assert len(told) < 50


def test_a_wait_that_the_endpoint_names_is_waited_and_cut_to_what_is_left() -> None:
    assert waits(700, named=300) == [300, 300, 100]
