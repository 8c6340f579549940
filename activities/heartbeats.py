"""Around every activity of this worker: it heartbeats, so that a stop reaches it and a dead worker is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.repeats import refuse_if_unwanted
from holdfast.core.contracts import WORKER_SHUTDOWN

INTERVAL_SECONDS: Final = 0.3
"""A cancel is learnt with a heartbeat's answer, where the server does not push it. Short calls never heartbeat."""

BEATS_PER_SECOND_MAX: Final = 300
"""Of all calls of a worker together: with more of them each beats less often, down to every LONGEST_SECONDS."""

LONGEST_SECONDS: Final = 1.2
"""Two beats within the 2.5 s after which a silent worker is taken for dead."""


class Pulse:
    """What the heartbeats of one activity carry: what the attempt before it left, unless the activity says more."""

    def __init__(self) -> None:
        self._details: Callable[[], object] | None = None

    def carry(self, details: Callable[[], object]) -> None:
        """Have every heartbeat from now on carry what `details` returns; the next attempt finds the last of them."""
        self._details = details

    def beat(self) -> None:
        """Heartbeat now; the SDK sends the latest one it holds back before it reports the activity's end."""
        # a heartbeat without details would wipe out those of the attempt before
        details = activity.info().heartbeat_details if self._details is None else (self._details(),)
        activity.heartbeat(*details)


_PULSE: ContextVar[Pulse] = ContextVar("pulse")
_beating: Final = set[Pulse]()


def pulse() -> Pulse:
    """Return the running activity's; one that only the activity itself beats where no interceptor is."""
    found = _PULSE.get(None)
    if found is None:
        found = Pulse()
        _PULSE.set(found)
    return found


class Heartbeats(Interceptor):
    """The worker interceptor that does it."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002  # the SDK's name
        """Wrap every activity."""
        return _Heartbeating(super().intercept_activity(next))


class _Heartbeating(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002, ANN401  # the SDK's signature
        if activity.info().is_local:
            return await super().execute_activity(input)
        pulse = Pulse()
        _PULSE.set(pulse)
        beating = asyncio.create_task(_keep_beating(pulse))
        try:
            await refuse_if_unwanted()
            return await super().execute_activity(input)
        except asyncio.CancelledError:
            pulse.beat()  # so that the next attempt, if there is one, knows all that this one did
            raise _cancelled() from None
        finally:
            beating.cancel()


def _cancelled() -> BaseException:
    """Return what to end a cancelled activity with: told apart, so that a restart is not taken for a stop."""
    why = activity.cancellation_details()
    if why is not None and why.worker_shutdown:
        text = "the worker shut down before the call ended"
        return ApplicationError(text, type=WORKER_SHUTDOWN, category=ApplicationErrorCategory.BENIGN)
    if why is not None and why.not_found:
        text = "the run has ended; nobody waits for this call"
        return ApplicationError(text, non_retryable=True, category=ApplicationErrorCategory.BENIGN)
    return asyncio.CancelledError()


async def _keep_beating(pulse: Pulse) -> None:
    _beating.add(pulse)
    try:
        while True:
            await asyncio.sleep(interval_seconds(len(_beating)))
            pulse.beat()
    finally:
        _beating.discard(pulse)


def interval_seconds(calls: int) -> float:
    """Return how often each of so many calls under way is to beat: hundreds of hung tools must not busy the server."""
    return min(max(INTERVAL_SECONDS, calls / BEATS_PER_SECOND_MAX), LONGEST_SECONDS)
