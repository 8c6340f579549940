"""One attempt of a tool call: whether it may start, when its turn comes, its time limit, and how it is counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.async_completion import heartbeat_directly
from activities.guardian_link import Details
from activities.heartbeats import HeartbeatDetails, pulse
from activities.stale_attempts import LATE_SECONDS_MAX, refuse_if_unwanted
from holdfast.core.conversation.attempt_tally import LOST_ATTEMPTS_MAX, POSTPONED, ToolAttempts, lost_for_good
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.tools.tool_errors import ended_without_answer, killed_workers, left_unbegun, lost_too_long
from holdfast.core.tools.tool_traits import ToolTraits

TURN_SECONDS_MAX: Final = 20.0
"""How long a suspect call waits for its turn before it gives up its slot in this worker."""

PACE_SECONDS_MIN: Final = 5.0
"""The least time that a call waits to be started, even after a turn that came late."""

ASK_SECONDS_MAX: Final = 5.0
"""How long a call that has waited asks the server whether it is still wanted. With the two above it stays within the
margin by which the server's limit exceeds the tool's (`workflows.execution.activity_calls.START_MARGIN`)."""

ReplyT = TypeVar("ReplyT")

UNHEARD: Final = "not begun yet: the run still has unprocessed signals, or the server does not answer"

POSTPONED_SECONDS: Final = 1.0
"""The wait before a postponed attempt is retried; it doubles each time, up to POSTPONED_SECONDS_MAX."""

POSTPONED_SECONDS_MAX: Final = 30.0
"""With this limit, the attempts that the server allows last for hours."""

LATE_SECONDS: Final = 1.0
"""The grace for a call that exceeded its time while this worker was blocked: it may have ended unnoticed."""


class AttemptFailure(ApplicationError):
    """A failed attempt of a tool call, raised by us; a tool can raise an ApplicationError of its own.

    It has no cause: a huge or unencodable failure would lose the completion. It is benign because the model handles a
    tool's error; it is not a fault of this worker.
    """

    def __init__(self, record: ErrorRecord, *, again: bool, after: timedelta | None = None) -> None:
        super().__init__(
            record.message,
            type=record.type,
            non_retryable=not again,
            next_retry_delay=after,
            category=ApplicationErrorCategory.BENIGN,
        )


async def attempted(traits: ToolTraits, running: Callable[[], Coroutine[Any, Any, ReplyT]]) -> ReplyT:
    """Run `running` within the tool's time limit and return its result, if this attempt is admitted.

    The guardian learns of the start before any of the tool's code runs. Raises ApplicationError if the attempt is not
    admitted or takes too long; otherwise whatever `running` raises.
    """
    info, here = activity.info(), pulse()
    if info.is_local:
        return await running()
    attempts = attempts_until_now()
    here.leave(attempts)
    losses = attempts.lost(info.attempt)
    # it was running when two workers died: a third attempt could kill a third worker
    if attempts.fatal:
        raise AttemptFailure(killed_workers(traits, attempts.deaths), again=False)
    if lost_for_good(losses, (info.started_time - info.scheduled_time).total_seconds()):
        raise AttemptFailure(lost_too_long(traits, losses), again=False)
    if here.repetition.unheard and not traits.at_most_once:  # such a call has this one attempt only
        raise _postponed(here, attempts, UNHEARD)
    clock = asyncio.get_running_loop().time
    waits_from = clock()
    async with _turn(here, attempts) as report_start:
        async with _paced(here, attempts, traits, waits_from + TURN_SECONDS_MAX):
            if clock() - waits_from > LATE_SECONDS_MAX:
                await _refuse_if_unwanted_by_now(here, attempts, traits)
            await report_start()
            work = asyncio.create_task(running())
        return await _in_time(traits, work)


def refuse_spent(traits: ToolTraits) -> None:
    """Raise ApplicationError if the call has used all its own attempts, the last of which the server timed out."""
    if attempts_until_now().own >= own_attempts_max(traits):
        raise AttemptFailure(ended_without_answer(traits, "it took too long"), again=False)


def failure_of(traits: ToolTraits, record: ErrorRecord, *, again: bool) -> AttemptFailure:
    """Return the failure of an attempt in which the tool failed; `again` is whether a retry is allowed at all."""
    info, here = activity.info(), pulse()
    if not info.is_local:
        attempts = attempts_until_now().after_failure()
        again = again and attempts.own < own_attempts_max(traits)
        here.leave(attempts)
        if again:
            here.beat()
    return AttemptFailure(record, again=again)


def own_attempts_max(traits: ToolTraits) -> int:
    """Return how many attempts the call itself may use; a call from the waiting queue has what it had left."""
    policy = activity.info().retry_policy
    allowed = policy.maximum_attempts if policy else 0
    return allowed - LOST_ATTEMPTS_MAX if allowed > LOST_ATTEMPTS_MAX else allowed or traits.attempts_max


def attempt_number(traits: ToolTraits) -> int:
    """Return the number of this attempt, including lost ones: above 1 the tool may have run before."""
    return activity.info().attempt + max(0, traits.attempts_max - own_attempts_max(traits))


def attempts_used() -> int:
    """Return how many of its own attempts the call has used so far."""
    return attempts_until_now().own


def attempts_until_now() -> ToolAttempts:
    """Return the outcomes of the previous attempts; one that the server timed out counts as the tool's failure."""
    attempts = ToolAttempts.after(activity.info().heartbeat_details)
    return attempts.after_failure() if pulse().repetition.timed_out else attempts


@asynccontextmanager
async def _turn(here: HeartbeatDetails, attempts: ToolAttempts) -> AsyncGenerator[Callable[[], Awaitable[None]]]:
    """Make a call that may have killed a worker wait for its turn; yield the function that reports its start."""

    async def report(*, turn: bool) -> None:
        if ToolAttempts.after(here.details()).task is not None:
            return  # it is at the server, and the next attempt has to find it
        beside, blamed = (attempts.after_death(blamed=blamed) for blamed in (False, True))
        await here.tell(Details(attempts, beside, blamed, turn))

    if not attempts.suspect:
        yield partial(report, turn=False)
        return
    await here.tell()
    try:
        async with asyncio.timeout(TURN_SECONDS_MAX):
            seconds = await here.turns.take(attempts.deaths, here)
    except TimeoutError:
        raise _postponed(here, attempts, "not begun yet: other calls that may have killed a worker go first") from None
    started = asyncio.Event()

    async def prove() -> None:
        """End the turn of a call that has run for `seconds` without killing the worker."""
        await started.wait()
        await asyncio.sleep(seconds)
        await report(turn=False)
        here.turns.end(here)

    async def report_start() -> None:
        await report(turn=True)
        started.set()

    proving = asyncio.create_task(prove())
    try:
        yield report_start
    finally:
        proving.cancel()
        here.turns.end(here)


@asynccontextmanager
async def _paced(
    here: HeartbeatDetails, attempts: ToolAttempts, traits: ToolTraits, until: float
) -> AsyncGenerator[None]:
    """Start the call when no other call is starting and this process is not blocked; wait at least until `until`."""
    try:
        # waiting counts toward the server's start-to-close: the server knows of no queue within a worker
        async with asyncio.timeout_at(max(until, asyncio.get_running_loop().time() + PACE_SECONDS_MIN)):
            await here.pacing.take()
    except asyncio.CancelledError:
        why = activity.cancellation_details()
        if traits.at_most_once and why is not None and why.worker_shutdown:
            raise AttemptFailure(left_unbegun(traits), again=False) from None
        raise
    except TimeoutError:
        if traits.at_most_once:  # it has this one attempt only
            yield
            return
        raise _postponed(here, attempts, "not begun yet: other calls keep this worker's interpreter busy") from None
    try:
        yield
    finally:
        here.pacing.give()


async def _refuse_if_unwanted_by_now(here: HeartbeatDetails, attempts: ToolAttempts, traits: ToolTraits) -> None:
    """Raise ApplicationError if the server no longer wants this call, which has waited here.

    The server may have given it to another worker, or the run may have been stopped. Other calls wait for the answer,
    so it is bounded by ASK_SECONDS_MAX.
    """
    unheard = True
    with suppress(TimeoutError):
        async with asyncio.timeout(ASK_SECONDS_MAX):
            await heartbeat_directly(here.details())
            unheard = (await refuse_if_unwanted(late=True)).unheard
    if unheard and not traits.at_most_once:
        raise _postponed(here, attempts, UNHEARD)


def _postponed(here: HeartbeatDetails, attempts: ToolAttempts, why: str) -> AttemptFailure:
    """Return the failure of an attempt that is not started now; it does not count as an attempt."""
    here.leave(attempts.after_postponement())
    here.beat()
    record = ErrorRecord(type=POSTPONED, message=why, source="worker")
    seconds = min(POSTPONED_SECONDS * 2.0 ** min(attempts.postponed, 10), POSTPONED_SECONDS_MAX)
    return AttemptFailure(record, again=True, after=timedelta(seconds=seconds))


async def _in_time(traits: ToolTraits, work: asyncio.Task[ReplyT]) -> ReplyT:
    """Return the result of `work`. Raises ApplicationError if it exceeds the tool's time limit."""
    clock = asyncio.get_running_loop().time
    # the server's start-to-close is longer by a margin, so that our own error text comes first
    until = clock() + traits.timeout_seconds
    try:
        await asyncio.wait([work], timeout=traits.timeout_seconds)
        if (
            not work.done() and clock() > until + LATE_SECONDS
        ):  # this loop was blocked: the end may be waiting to be processed
            await asyncio.wait([work], timeout=LATE_SECONDS)
    except asyncio.CancelledError:
        work.cancel()
        return await work
    if work.done():
        return work.result()
    work.cancel()
    # a task whose exception nobody reads is logged as never retrieved
    work.add_done_callback(lambda over: over.cancelled() or over.exception())
    raise failure_of(traits, ended_without_answer(traits, "it took too long"), again=True)
