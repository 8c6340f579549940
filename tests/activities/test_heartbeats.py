"""How often calls under way heartbeat."""

from __future__ import annotations

import pytest

from activities.heartbeats import BEATS_PER_SECOND_MAX, INTERVAL_SECONDS, LONGEST_SECONDS, interval_seconds
from workflows.execution.activity_calls import HEARTBEAT_TIMEOUT


@pytest.mark.parametrize(("calls", "seconds"), [(1, INTERVAL_SECONDS), (45, INTERVAL_SECONDS), (90, 0.6), (570, 3.8)])
def test_a_few_calls_beat_often_and_many_together_no_more_than_the_server_bears(calls: int, seconds: float) -> None:
    assert interval_seconds(calls) == pytest.approx(seconds)
    assert calls / interval_seconds(calls) <= BEATS_PER_SECOND_MAX + 1e-9


def test_however_many_there_are_none_is_taken_for_lost() -> None:
    assert interval_seconds(100_000) == LONGEST_SECONDS
    assert HEARTBEAT_TIMEOUT.total_seconds() > 2 * LONGEST_SECONDS
