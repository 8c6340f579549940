"""Heartbeats for every activity of this worker, so that a stop reaches it and a lost machine is noticed.

The guardian reports a worker's death, so missing heartbeats need not (`activities.guardian`). A call whose details do
not change therefore heartbeats only as often as a stop needs: if the server pushes cancels, hardly ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final

from temporalio import activity
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.async_completion import heartbeat_directly, to_its_end
from activities.crash_suspects import CrashSuspects
from activities.guardian_link import Details, GuardedAttempt, GuardianLink
from activities.stale_attempts import (
    ASK_TIMEOUT,
    FIRST,
    PreviousAttempt,
    RunOver,
    late_seconds,
    refuse_if_unwanted,
)
from activities.tool_start_pacing import Pacer
from holdfast.core.wire.contracts import (
    INFERENCE_ACTIVITY,
    SUMMARISE_ACTIVITY,
    WORKER_SHUTDOWN,
    FailedAttemptsUsage,
)

INTERVAL_SECONDS: Final = 0.3
"""How often a call heartbeats if its details change, or if heartbeats are its only way to learn of a cancel."""

BEATS_PER_SECOND_MAX: Final = 150
"""The rate of all calls of a worker together: with more calls each beats less often, at least every LONGEST_SECONDS."""

LONGEST_SECONDS: Final = 4.0
"""The longest delay of a stop for one of hundreds of calls if the server does not push cancels."""

PUSHED_SECONDS: Final = 10.0
"""The interval if it does: three within the time after which a silent machine counts as lost."""


MODEL_ACTIVITIES: Final = (INFERENCE_ACTIVITY, SUMMARISE_ACTIVITY)


class HeartbeatDetails:
    """The heartbeat details of one activity: those of the previous attempt until the activity sets its own."""

    def __init__(
        self, guarded: GuardedAttempt | None = None, turns: CrashSuspects | None = None, pacing: Pacer | None = None
    ) -> None:
        self.turns: Final = turns or CrashSuspects()
        self.pacing: Final = pacing or Pacer()
        self._carried: Callable[[], object] | None = None
        self._spent: Callable[[], FailedAttemptsUsage | None] = lambda: None
        self._progress: tuple[object, ...] = ()
        self.changing = False
        """Whether the details can change at any moment."""
        self.news: Final = asyncio.Event()
        """Set while that is so, and when a tool has reported its progress."""
        self._guarded = guarded
        self._beaten_at = time.monotonic()
        self._longest = 0.0
        self.repetition = FIRST

    def carry(self, details: Callable[[], object], spent: Callable[[], FailedAttemptsUsage | None]) -> None:
        """Make every heartbeat from now on carry what `details` returns; the next attempt finds the last of them.

        `spent` returns the usage that the guardian signals to the run if the worker dies.
        """
        self._carried, self._spent, self.changing = details, spent, True
        self.news.set()

    def leave(self, details: object) -> None:
        """Make every heartbeat from now on carry `details`, which do not change."""
        self._carried, self._progress, self.changing = lambda: details, (), False
        self.news.clear()

    def report(self, progress: object) -> None:
        """Make heartbeats carry a tool's progress as a second detail, for those who look; no attempt reads it."""
        self._progress = (progress,)
        self.news.set()

    def details(self) -> tuple[object, ...]:
        """Return a heartbeat's details: one without details would erase those of the previous attempt."""
        # the server keeps the last heartbeat's details for the next attempt, even if they are empty
        carried = tuple(activity.info().heartbeat_details) if self._carried is None else (self._carried(),)
        return (*carried, *self._progress)

    def silence(self) -> float:
        """Return the seconds since the last heartbeat."""
        return time.monotonic() - self._beaten_at

    def longest_silence(self) -> float:
        """Return the longest time without a heartbeat so far, in seconds."""
        return max(self._longest, self.silence())

    def beat(self) -> None:
        """Heartbeat now; before it reports the activity's end, the SDK sends the latest heartbeat it holds back."""
        self._longest, self._beaten_at = self.longest_silence(), time.monotonic()
        # the SDK throttles: of several within the throttle interval the latest goes out at its end
        activity.heartbeat(*self.details())

    async def tell(self, details: Details | None = None) -> None:
        """Report to the guardian the details that the next attempt finds if the worker dies now."""
        if self._guarded is not None:
            await self._guarded.tell(details or Details(next(iter(self.details()), None), spent=self._spent()))


_PULSE: ContextVar[HeartbeatDetails] = ContextVar("pulse")
_beating: Final = set[HeartbeatDetails]()


def pulse() -> HeartbeatDetails:
    """Return the running activity's heartbeat details; without the interceptor, new ones that nothing else sends."""
    details = _PULSE.get(None)
    if details is None:
        details = HeartbeatDetails()
        _PULSE.set(details)
    return details


class Heartbeats(Interceptor):
    """The worker interceptor that heartbeats; it reports every attempt to `guardian`, if there is one."""

    def __init__(self, guardian: GuardianLink | None = None) -> None:
        self.guardian = guardian
        self.turns: Final = CrashSuspects()
        self.pacing: Final = Pacer()
        self.pushed = False
        """Whether the server pushes cancels to this worker."""
        self.on_run_over: Callable[[Sequence[Any]], Awaitable[None]] | None = None
        """Takes the heartbeat details of an attempt that is not started because its run is over."""

    async def ask(self, client: Client) -> None:
        """Ask the server whether it pushes cancels; if it cannot be asked, assume that it does not."""
        try:
            described = await client.workflow_service.describe_namespace(
                DescribeNamespaceRequest(namespace=client.namespace), timeout=ASK_TIMEOUT
            )
        except RPCError:
            return
        # worker commands (server 1.32): a cancel arrives in 5 to 20 ms without any heartbeat
        self.pushed = described.namespace_info.capabilities.worker_commands

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002  # the SDK's name
        """Wrap every activity."""
        return _HeartbeatTask(super().intercept_activity(next), self)


class _HeartbeatTask(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, heartbeats: Heartbeats) -> None:  # noqa: A002  # the SDK's name
        super().__init__(next)
        self._heartbeats = heartbeats

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002, ANN401  # the SDK's signature
        # local activities have no heartbeats; a cancel reaches them with the workflow task
        if activity.info().is_local:
            return await super().execute_activity(input)
        guardian = self._heartbeats.guardian
        guarded = guardian.attempt() if guardian else None
        pulse = HeartbeatDetails(guarded, self._heartbeats.turns, self._heartbeats.pacing)
        _PULSE.set(pulse)
        late = late_seconds()
        beating = asyncio.create_task(keep_beating(pulse, pushed=self._heartbeats.pushed, late=late > 0))
        try:
            await pulse.tell()
            pulse.repetition = await self._repetition()
            doing = super().execute_activity(input)
            return await to_its_end(doing, pulse.details, lambda: max(late, pulse.longest_silence()))
        except asyncio.CancelledError:
            pulse.beat()  # so that a next attempt finds the latest details
            raise _cancelled() from None
        finally:
            beating.cancel()
            if guarded is not None:
                guarded.end()

    async def _repetition(self) -> PreviousAttempt:
        try:
            return await refuse_if_unwanted()
        except RunOver:
            if self._heartbeats.on_run_over is not None and activity.info().activity_type in MODEL_ACTIVITIES:
                await self._heartbeats.on_run_over(activity.info().heartbeat_details)
            raise


def _cancelled() -> BaseException:
    """Return the error that ends a cancelled activity; it distinguishes a worker's restart from a stop."""
    why = activity.cancellation_details()
    # a result returned here would count as the answer: the attempt must fail to be retried
    if why is not None and why.worker_shutdown:
        text = "the worker shut down before the call ended"
        return ApplicationError(text, type=WORKER_SHUTDOWN, category=ApplicationErrorCategory.BENIGN)
    # the server answers a heartbeat of a closed run with NOT_FOUND, which the SDK makes a cancel
    if why is not None and why.not_found:
        text = "the run has ended; nobody waits for this call"
        return ApplicationError(text, non_retryable=True, category=ApplicationErrorCategory.BENIGN)
    return asyncio.CancelledError()


async def keep_beating(pulse: HeartbeatDetails, *, pushed: bool, late: bool) -> None:
    """Heartbeat while the activity runs: soon when its details change, else only as often as a stop needs."""
    _beating.add(pulse)
    carried = pulse.details()
    try:
        if late:
            # the heartbeat timeout counts from when the server gave the task away, not from now
            await heartbeat_directly(carried)
        while True:
            interval = interval_seconds(len(_beating))
            # without push a cancel comes only with the reply to a heartbeat
            rest = PUSHED_SECONDS if pushed else interval
            with suppress(TimeoutError):  # an activity sets `news` only after it has started
                async with asyncio.timeout(rest - interval):
                    await pulse.news.wait()
            await asyncio.sleep(interval)
            if not pulse.changing:
                pulse.news.clear()
            details = pulse.details()
            if details != carried and pulse.changing:  # whoever left fixed details has reported them
                await pulse.tell()
            if details == carried and pulse.silence() < rest - INTERVAL_SECONDS:
                continue
            carried = details
            pulse.beat()
    finally:
        _beating.discard(pulse)


def interval_seconds(calls: int) -> float:
    """Return the heartbeat interval for this many running calls: hundreds of hung tools must not load the server."""
    return min(max(INTERVAL_SECONDS, calls / BEATS_PER_SECOND_MAX), LONGEST_SECONDS)
