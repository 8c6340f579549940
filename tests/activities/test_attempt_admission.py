"""Which attempts of a tool call are begun: none beyond its own, whoever ended the last one."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import uuid4

import pytest
from temporalio.activity import ActivityCancellationDetails
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from activities import async_completion, attempt_admission, heartbeats
from activities.attempt_admission import AttemptFailure
from activities.heartbeats import Heartbeats, pulse
from activities.stale_attempts import PreviousAttempt
from activities.tools import ToolSlots, tool_activities
from holdfast import tool
from holdfast.core.conversation.attempt_tally import LOST_ATTEMPTS_MAX, POSTPONED, ToolAttempts

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
    environment = environment_of_a_call()
    details = [ToolAttempts(own=own).model_dump(mode="json")]
    environment.info = dataclasses.replace(environment.info, attempt=own + 2, heartbeat_details=details)

    async def attempt() -> object:
        pulse().repetition = PreviousAttempt(timed_out=True)
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
    environment = environment_of_a_call()
    monkeypatch.setattr(attempt_admission, "TURN_SECONDS_MAX", 0.01)
    monkeypatch.setattr(attempt_admission, "PACE_SECONDS_MIN", 0.01)

    async def attempt() -> object:
        await pulse().pacing.take()  # another call is at it, for good
        return await activity({})

    pauses: list[float] = []
    for postponed in range(8):
        details = [ToolAttempts(postponed=postponed).model_dump(mode="json")]
        environment.info = dataclasses.replace(environment.info, attempt=postponed + 1, heartbeat_details=details)
        with pytest.raises(AttemptFailure) as put_off:
            await environment.run(attempt)
        assert put_off.value.next_retry_delay
        pauses.append(put_off.value.next_retry_delay.total_seconds())
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


@pytest.mark.parametrize(
    ("server", "once", "said"),
    [
        ("still waits", False, "noted"),
        ("waits no more", False, "no longer waits"),
        ("does not answer", False, "does not answer"),
        ("does not answer", True, "noted"),
    ],
)
async def test_a_call_that_has_waited_for_long_is_begun_if_the_server_still_waits(
    monkeypatch: pytest.MonkeyPatch, server: str, said: str, *, once: bool
) -> None:
    asked: list[str] = []

    @tool(at_most_once=once)
    async def note() -> str:
        """Take note."""
        asked.append("begun")
        return "noted"

    async def heartbeat_directly(_: object) -> None:
        asked.append("heartbeat")

    async def refuse_if_unwanted(*, late: bool) -> PreviousAttempt:
        assert late
        if server == "waits no more":
            raise ApplicationError("the server no longer waits for this attempt; it was not started")
        return PreviousAttempt(unheard=server == "does not answer")

    monkeypatch.setattr(attempt_admission, "heartbeat_directly", heartbeat_directly)
    monkeypatch.setattr(attempt_admission, "refuse_if_unwanted", refuse_if_unwanted)
    monkeypatch.setattr(attempt_admission, "LATE_SECONDS_MAX", 0.01)
    [activity] = tool_activities([note])
    environment = environment_of_a_call()

    async def attempt() -> object:
        pacing, waits = pulse().pacing, asyncio.Event()
        await pacing.take()  # another call is at it, until this one has waited for a while
        take = pacing.take

        async def wait_and_take() -> None:
            waits.set()
            await take()

        monkeypatch.setattr(pacing, "take", wait_and_take)
        call = asyncio.create_task(cast("Coroutine[Any, Any, object]", activity({})))
        await waits.wait()
        asyncio.get_running_loop().call_later(0.05, pacing.give)
        return await call

    with nullcontext() if said == "noted" else pytest.raises(ApplicationError, match=said):
        assert await environment.run(attempt) == said
    assert asked == ["heartbeat", *(["begun"] if said == "noted" else [])]


async def test_a_server_that_does_not_answer_in_time_puts_the_call_off(monkeypatch: pytest.MonkeyPatch) -> None:
    @tool
    async def note() -> str:
        """Take note."""
        return "noted"

    async def heartbeat_directly(_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(attempt_admission, "heartbeat_directly", heartbeat_directly)
    monkeypatch.setattr(attempt_admission, "LATE_SECONDS_MAX", -1.0)
    monkeypatch.setattr(attempt_admission, "ASK_SECONDS_MAX", 0.01)
    [activity] = tool_activities([note])

    async def attempt() -> object:
        return await activity({})

    with pytest.raises(AttemptFailure) as failed:
        await environment_of_a_call().run(attempt)
    assert failed.value.type == POSTPONED


@pytest.mark.parametrize("once", [False, True])
async def test_a_call_of_one_attempt_that_its_worker_leaves_unbegun_is_told_as_such(*, once: bool) -> None:
    @tool(at_most_once=once)
    async def note() -> str:
        """Take note."""
        return "noted"

    [activity] = tool_activities([note])
    environment = environment_of_a_call()

    async def attempt() -> object:
        await pulse().pacing.take()  # another call is at it, for good
        why = ActivityCancellationDetails(worker_shutdown=True)
        asyncio.get_running_loop().call_later(0.05, environment.cancel, why)
        return await activity({})

    if not once:
        with pytest.raises(asyncio.CancelledError):
            await environment.run(attempt)
        return
    with pytest.raises(AttemptFailure, match="it was not begun") as failed:
        await environment.run(attempt)
    assert (failed.value.type, failed.value.non_retryable) == ("ToolUnavailable", True)


@pytest.mark.parametrize(("waited", "late"), [(1, False), (25, True), (3600, False)])
async def test_the_server_waits_anew_for_what_a_busy_worker_comes_to_late(
    monkeypatch: pytest.MonkeyPatch, waited: float, *, late: bool
) -> None:
    asked: list[str] = []

    async def heartbeat_directly(_: object) -> None:
        asked.append("heartbeat")

    async def refuse_if_unwanted() -> PreviousAttempt:
        return PreviousAttempt()

    class Reporting:
        async def complete(self, *_: object, **__: object) -> None:
            asked.append("reported")

    class Next(ActivityInboundInterceptor):
        async def execute_activity(self, input: ExecuteActivityInput) -> str:  # noqa: A002, ARG002  # the SDK's signature
            return "done"

    monkeypatch.setattr(heartbeats, "heartbeat_directly", heartbeat_directly)
    monkeypatch.setattr(heartbeats, "refuse_if_unwanted", refuse_if_unwanted)
    monkeypatch.setattr(async_completion, "_handle", Reporting)
    environment = environment_of_a_call()
    started_at = datetime.now(UTC) - timedelta(seconds=waited)
    environment.info = dataclasses.replace(environment.info, started_time=started_at)

    async def attempt() -> object:
        first = Heartbeats().intercept_activity(Next(cast("ActivityInboundInterceptor", None)))
        return await first.execute_activity(ExecuteActivityInput(fn=attempt, args=(), executor=None, headers={}))

    assert await environment.run(attempt) == "done"
    assert asked == (["heartbeat", "reported"] if late else [])


def environment_of_a_call() -> ActivityEnvironment:
    """Return where an attempt of a call of some run is made."""
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(
        environment.info,
        workflow_id=str(uuid4()),
        retry_policy=RetryPolicy(maximum_attempts=ATTEMPTS_MAX + LOST_ATTEMPTS_MAX),
        start_to_close_timeout=timedelta(seconds=90),
    )
    return environment
