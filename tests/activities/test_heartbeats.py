"""How often calls under way heartbeat."""

from __future__ import annotations

import asyncio

import pytest

from activities.heartbeats import (
    BEATS_PER_SECOND_MAX,
    INTERVAL_SECONDS,
    LONGEST_SECONDS,
    HeartbeatDetails,
    interval_seconds,
    keep_beating,
)
from workflows.execution.activity_calls import HEARTBEAT_TIMEOUT


@pytest.mark.parametrize(("calls", "seconds"), [(1, INTERVAL_SECONDS), (45, INTERVAL_SECONDS), (90, 0.6), (570, 3.8)])
def test_a_few_calls_beat_often_and_many_together_no_more_than_the_server_bears(calls: int, seconds: float) -> None:
    assert interval_seconds(calls) == pytest.approx(seconds)
    assert calls / interval_seconds(calls) <= BEATS_PER_SECOND_MAX + 1e-9


def test_however_many_there_are_none_is_taken_for_lost() -> None:
    assert interval_seconds(100_000) == LONGEST_SECONDS
    assert HEARTBEAT_TIMEOUT.total_seconds() > 2 * LONGEST_SECONDS


@pytest.mark.parametrize("turns", range(5))
async def test_the_heartbeats_of_a_call_end_with_it_whatever_it_reports_last(turns: int) -> None:
    """A task that beats on holds up the end of its worker, which then exits with 1."""
    pulse = HeartbeatDetails()
    pulse.carry(lambda: None, lambda: None)
    pulse.leave(None)
    beating = asyncio.create_task(keep_beating(pulse, pushed=True, late=False))
    await asyncio.sleep(0.01)
    pulse.report("done")
    for _ in range(turns):
        await asyncio.sleep(0)
    beating.cancel()
    await asyncio.wait([beating], timeout=5)
    assert beating.cancelled()
