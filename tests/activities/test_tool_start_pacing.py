"""How tool calls begin that keep the interpreter's lock: one after another, with time between them to report an end."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from uuid import uuid4

import pytest
from temporalio.common import RetryPolicy
from temporalio.testing import ActivityEnvironment

from activities import attempt_admission
from activities import tool_start_pacing as pacing_module
from activities.attempt_admission import AttemptFailure
from activities.heartbeats import pulse
from activities.tool_start_pacing import CALM_TURNS, LATE_TURNS_MAX, SLOW_BEGINNINGS, STALL_SECONDS, Pacer
from activities.tools import tool_activities
from holdfast import tool
from holdfast.core.conversation.attempt_tally import LOST_ATTEMPTS_MAX, POSTPONED

HELD_SECONDS = STALL_SECONDS * 1.2


class Loop:
    """The event loop as pacing sees it, with a clock of its own. `turns` counts how often it was slept in."""

    Lock = asyncio.Lock

    def __init__(self) -> None:
        self.now = 100.0
        self.turns = 0
        self.held = 0.0
        """For how long the interpreter's lock is kept, from now on, in each turn."""

    def get_running_loop(self) -> Loop:
        return self

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.now += self.held
        callback()

    async def sleep(self, seconds: float) -> None:
        self.now += seconds + self.held
        self.turns += 1

    async def begin(self, pacing: Pacer, held: float = 0.0) -> int:
        """Begin a call that keeps the lock for so long as it begins; return how many turns it waited for that."""
        before = self.turns
        await pacing.take()
        always, self.held = self.held, self.held + held
        pacing.give()
        self.held = always
        return self.turns - before


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()
    monkeypatch.setattr(pacing_module, "asyncio", loop)
    return loop


async def test_the_loop_turns_between_two_calls_that_keep_the_lock(loop: Loop) -> None:
    pacing = Pacer()
    assert await loop.begin(pacing, HELD_SECONDS) <= 1
    assert [await loop.begin(pacing, HELD_SECONDS) for _ in range(4)] == [CALM_TURNS] * 4


async def test_calls_begin_quickly_again_soon_after_the_loop_stood_still(loop: Loop) -> None:
    pacing = Pacer()
    await loop.begin(pacing, HELD_SECONDS)
    waited = [await loop.begin(pacing) for _ in range(SLOW_BEGINNINGS + 5)]
    assert waited == [CALM_TURNS] * SLOW_BEGINNINGS + [1] * 5


async def test_a_loop_that_stands_still_again_and_again_keeps_nobody_waiting(loop: Loop) -> None:
    pacing = Pacer()
    await loop.begin(pacing)
    loop.held = HELD_SECONDS
    assert [await loop.begin(pacing) for _ in range(3)] == [LATE_TURNS_MAX] * 3


async def test_who_waits_no_longer_leaves_the_way_free() -> None:
    pacing = Pacer()
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
    monkeypatch.setattr(attempt_admission, "TURN_SECONDS_MAX", 0.05)
    monkeypatch.setattr(attempt_admission, "PACE_SECONDS_MIN", 0.05)

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
