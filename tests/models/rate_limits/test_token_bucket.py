"""A bucket lets no minute have more than its limit."""

from __future__ import annotations

import random

import pytest

from holdfast.models.rate_limits.token_bucket import DEBT_MINUTES_MAX, SHARE, TokenBucket


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("limit", [1, 2, 7, 19, 20, 60, 600, 10_000])
def test_no_minute_has_more_than_the_limit(limit: int) -> None:
    clock, chance = Clock(), random.Random(limit)  # noqa: S311
    bucket, times = TokenBucket(limit, clock), list[float]()
    while clock.now < 400:
        if chance.random() < 0.01:  # a pause: the bucket fills up
            clock.now += 60 * chance.random()
        clock.now += bucket.wait_seconds(1)
        if bucket.wait_seconds(1) == 0:
            bucket.take(1)
            times.append(clock.now)
    for first, began in enumerate(times):
        assert sum(began <= each < began + 60 for each in times[first : first + limit + 2]) <= limit
    assert len(times) >= 2


def test_what_is_larger_than_the_bucket_is_let_through_and_made_up_for() -> None:
    clock = Clock()
    bucket = TokenBucket(6_000, clock)
    assert bucket.wait_seconds(5_000) == 0
    bucket.take(5_000)
    assert bucket.wait_seconds(1) == pytest.approx((5_000 - 180 + 1) / (SHARE * 100))


def test_what_was_not_used_is_given_back() -> None:
    bucket = TokenBucket(6_000, Clock())
    bucket.take(500)
    assert bucket.wait_seconds(100) > 0
    bucket.take(-480)
    assert bucket.wait_seconds(100) == 0


def test_an_absurd_use_stops_a_route_for_minutes_and_not_for_good() -> None:
    bucket = TokenBucket(6_000, Clock())
    bucket.take(10**12)
    assert bucket.wait_seconds(1) <= (DEBT_MINUTES_MAX + 1) * 60 / SHARE


def test_what_the_provider_has_left_counts_where_it_is_less() -> None:
    clock = Clock()
    bucket = TokenBucket(6_000, clock)
    bucket.lower_to(10_000)
    assert bucket.wait_seconds(100) == 0
    bucket.lower_to(0)
    assert bucket.wait_seconds(100) == pytest.approx(100 / (SHARE * 100))
    bucket.lower_to(-5)
    assert bucket.wait_seconds(100) == pytest.approx(100 / (SHARE * 100))
