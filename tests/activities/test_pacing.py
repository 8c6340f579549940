"""How tool calls begin that keep the interpreter's lock: one after another, with time between them to report an end."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from uuid import uuid4

import pytest
from temporalio.common import RetryPolicy
from temporalio.testing import ActivityEnvironment

from activities import tool_attempts
from activities.heartbeats import pulse
from activities.pacing import CALM_SECONDS, CALM_TURNS, LATE_TURNS_MAX, SLOW_BEGINNINGS, STALL_SECONDS, Pacing
from activities.tool_attempts import AttemptFailure
from activities.tools import tool_activities
from holdfast import tool
from holdfast.core.attempts import LOST_ATTEMPTS_MAX, POSTPONED

HOGS = 4


async def test_the_loop_turns_between_two_calls_that_keep_the_lock() -> None:
    pacing, turns = Pacing(), 0
    begun_at_turn: list[int] = []

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def hog() -> None:
        begun_at_turn.append(turns)
        time.sleep(STALL_SECONDS * 1.2)  # noqa: ASYNC251  # what a thread does to the loop that keeps the lock

    async def call() -> None:
        await pacing.take()
        work = asyncio.create_task(hog())
        pacing.give()
        await work

    turning = asyncio.create_task(turn())
    await asyncio.gather(*(call() for _ in range(HOGS)))
    turning.cancel()
    assert len(begun_at_turn) == HOGS
    between = [after - before for before, after in pairwise(begun_at_turn)]
    assert all(each >= CALM_TURNS for each in between), between


async def test_calls_begin_quickly_again_soon_after_the_loop_stood_still() -> None:
    pacing, clock = Pacing(), asyncio.get_running_loop().time
    await pacing.take()
    pacing.give()
    time.sleep(STALL_SECONDS * 1.2)  # noqa: ASYNC251  # what a thread does to the loop that keeps the lock
    began_at: list[float] = []
    for _ in range(SLOW_BEGINNINGS + 50):
        await pacing.take()
        began_at.append(clock())
        pacing.give()
    pauses = [after - before for before, after in pairwise(began_at)]
    assert sum(pause >= CALM_TURNS * CALM_SECONDS for pause in pauses) == SLOW_BEGINNINGS - 1, "the first was slow, too"


async def test_a_loop_that_stands_still_again_and_again_keeps_nobody_waiting() -> None:
    pacing, stalls = Pacing(), 0

    async def slices() -> None:
        nonlocal stalls
        while True:
            stalls += 1
            time.sleep(STALL_SECONDS * 1.1)  # noqa: ASYNC251  # what a thread does to the loop that keeps the lock
            await asyncio.sleep(CALM_SECONDS)

    slicing = asyncio.create_task(slices())
    for _ in range(2):
        await pacing.take()
        pacing.give()
    slicing.cancel()
    assert stalls <= 2 * (LATE_TURNS_MAX + 1)


async def test_who_waits_no_longer_leaves_the_way_free() -> None:
    pacing = Pacing()
    await pacing.take()
    waiting = asyncio.create_task(pacing.take())
    await asyncio.sleep(0)
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    pacing.give()
    async with asyncio.timeout(10):
        await pacing.take()


@pytest.mark.parametrize("once", [False, True])
async def test_a_call_that_cannot_begin_is_put_off_unless_it_has_but_one_attempt(
    monkeypatch: pytest.MonkeyPatch, *, once: bool
) -> None:
    @tool(at_most_once=once)
    async def note() -> str:
        """Take note."""
        return "noted"

    [activity] = tool_activities([note])
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(
        environment.info,
        workflow_id=str(uuid4()),
        retry_policy=RetryPolicy(maximum_attempts=1 + LOST_ATTEMPTS_MAX),
        start_to_close_timeout=timedelta(seconds=90),
    )
    monkeypatch.setattr(tool_attempts, "TURN_SECONDS_MAX", 0.05)
    monkeypatch.setattr(tool_attempts, "PACE_SECONDS_MIN", 0.05)

    async def attempt() -> object:
        await pulse().pacing.take()  # another call is at it
        return await activity({})

    if once:
        assert await environment.run(attempt) == "noted"
        return
    with pytest.raises(AttemptFailure) as failed:
        await environment.run(attempt)
    assert (failed.value.type, failed.value.non_retryable) == (POSTPONED, False)
    assert failed.value.next_retry_delay
