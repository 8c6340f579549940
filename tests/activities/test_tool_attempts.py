"""Which attempts of a tool call are begun: none beyond its own, whoever ended the last one."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import tool_attempts
from activities.heartbeats import Pulse, pulse
from activities.repeats import LATE_SECONDS_MAX, Repetition, waited_seconds
from activities.tool_attempts import AttemptFailure
from activities.tools import ToolSlots, tool_activities
from holdfast import tool
from holdfast.core.attempts import LOST_ATTEMPTS_MAX, ToolAttempts

ATTEMPTS_MAX = 3


@pytest.mark.parametrize("slots", [0, 1], ids=["no slot free", "a slot free"])
@pytest.mark.parametrize(("own", "begun"), [(1, True), (2, False), (40, False)])
async def test_a_call_whose_last_attempt_the_server_ended_is_not_begun_beyond_its_own(
    own: int, slots: int, *, begun: bool
) -> None:
    calls: list[str] = []

    @tool(attempts_max=ATTEMPTS_MAX)
    async def hold() -> str:
        """Hold the interpreter's lock, in other attempts."""
        calls.append("begun")
        return "held"

    [activity] = tool_activities([hold], ToolSlots(slots))
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(
        environment.info,
        attempt=own + 2,
        workflow_id=str(uuid4()),
        heartbeat_details=[ToolAttempts(own=own).model_dump(mode="json")],
        retry_policy=RetryPolicy(maximum_attempts=ATTEMPTS_MAX + LOST_ATTEMPTS_MAX),
        start_to_close_timeout=timedelta(seconds=90),
    )

    async def attempt() -> object:
        pulse().repetition = Repetition(timed_out=True)
        return await activity({})

    if begun and slots:
        assert await environment.run(attempt) == "held"
        return
    with pytest.raises(Exception) as failed:  # noqa: PT011  # which one is what is looked at
        await environment.run(attempt)
    assert not calls
    if not begun:
        assert isinstance(failed.value, AttemptFailure)
        assert (failed.value.type, failed.value.non_retryable) == ("ToolTimeout", True)


async def test_a_call_that_is_put_off_again_and_again_is_tried_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @tool
    async def note() -> str:
        """Take note."""
        return "noted"

    [activity] = tool_activities([note])
    environment = ActivityEnvironment()
    monkeypatch.setattr(tool_attempts, "TURN_SECONDS_MAX", 0.01)

    async def attempt() -> object:
        await pulse().pacing.take()  # another call is at it, for good
        return await activity({})

    pauses: list[float] = []
    for postponed in range(8):
        environment.info = dataclasses.replace(
            environment.info,
            attempt=postponed + 1,
            workflow_id=str(uuid4()),
            heartbeat_details=[ToolAttempts(postponed=postponed).model_dump(mode="json")],
            retry_policy=RetryPolicy(maximum_attempts=ATTEMPTS_MAX + LOST_ATTEMPTS_MAX),
        )
        with pytest.raises(AttemptFailure) as put_off:
            await environment.run(attempt)
        assert put_off.value.next_retry_delay
        pauses.append(put_off.value.next_retry_delay.total_seconds())
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


@pytest.mark.parametrize(("waited", "awaited"), [(5, True), (25, True), (25, False)])
async def test_a_call_that_a_busy_worker_comes_to_late_is_begun_if_the_server_still_waits(
    monkeypatch: pytest.MonkeyPatch, waited: float, *, awaited: bool
) -> None:
    asked: list[str] = []

    @tool
    async def note() -> str:
        """Take note."""
        asked.append("begun")
        return "noted"

    async def still_here(_: object) -> None:
        asked.append("still here")

    async def refuse_if_unwanted() -> Repetition:
        asked.append("unwanted?")
        if not awaited:
            raise ApplicationError("the server no longer waits for this attempt; it was not started")
        return Repetition()

    monkeypatch.setattr(tool_attempts, "still_here", still_here)
    monkeypatch.setattr(tool_attempts, "refuse_if_unwanted", refuse_if_unwanted)
    [activity] = tool_activities([note])
    environment = ActivityEnvironment()
    started_at = datetime.now(UTC) - timedelta(seconds=waited)
    environment.info = dataclasses.replace(environment.info, workflow_id=str(uuid4()), started_time=started_at)

    async def attempt() -> object:
        here = Pulse(waited=waited_seconds())
        monkeypatch.setattr(tool_attempts, "pulse", lambda: here)
        return await activity({})

    with nullcontext() if awaited else pytest.raises(ApplicationError, match="no longer waits"):
        assert await environment.run(attempt) == "noted"
    late = ["still here", "unwanted?"] if waited > LATE_SECONDS_MAX else []
    assert asked == [*late, *(["begun"] if awaited else [])]
