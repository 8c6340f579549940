"""How long a model call is retried: until its deadline, whatever the number of attempts.

Its run is signalled that it waits after 5, 10, 20 … seconds.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from temporalio import activity
from temporalio.service import RPCError

from holdfast.core.base.bounds import ERROR_CHARS_MAX
from holdfast.core.base.retries import next_wait_seconds
from holdfast.core.base.safe_text import clamped
from holdfast.core.wire.contracts import MODEL_WAIT_SIGNAL, ModelWait

SIGNAL_TIMEOUT: Final = timedelta(seconds=2)
"""How long signalling a run may take."""

FIRST_REPORT_SECONDS: Final = 5.0
"""The wait after which the run is first signalled; each further signal comes after twice that time."""

SOONEST: Final = timedelta(milliseconds=1)
"""Stands for no wait before the next attempt: Temporal reads zero as unset."""


class RetryDeadline:
    """The deadline of one model call, as one of its attempts sees it.

    `begun_at` is when the first attempt started; None in that attempt itself. Moments are by the server's clock; the
    time within an attempt is measured here.
    """

    def __init__(self, seconds: float, begun_at: datetime | None) -> None:
        self.seconds = seconds
        self.begun_at = begun_at or activity.info().started_time
        self._took_up = time.monotonic()

    def leave_out(self, seconds: float) -> None:
        """Leave a wait for rate limits out of the time: it is none that a failing endpoint is given."""
        self.begun_at += timedelta(seconds=seconds)

    def stand_still(self, wait: timedelta) -> None:
        """Leave this attempt and the `wait` after it out of the time."""
        self.begun_at += self._now() - activity.info().started_time + wait

    def next_wait(self, named: timedelta | None) -> timedelta | None:
        """Return the wait before the next attempt, given the one the endpoint `named`; None if the deadline is over."""
        requested_seconds = None if named is None else named.total_seconds()
        wait = next_wait_seconds(activity.info().attempt, requested_seconds, self._waited(self._now()), self.seconds)
        # next_retry_delay replaces the policy's interval for this attempt alone; zero falls back to the policy
        return None if wait is None else max(timedelta(seconds=wait), SOONEST)

    async def tell(self, message: str, wait: timedelta) -> None:
        """Signal the run that its call waits, if 5, 10, 20 … seconds pass in this attempt or in the wait after it."""
        info, now = activity.info(), self._now()
        if not doubles_within(self._waited(info.started_time), self._waited(now + wait)):
            return
        model_wait = ModelWait(
            call=info.activity_id,
            attempt=info.attempt,
            message=clamped(message, ERROR_CHARS_MAX),
            since=self.begun_at,
            next_at=now + wait,
        )
        workflow = activity.client().get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
        with suppress(RPCError):  # the run has ended or the server is down: the call waits without the signal
            await workflow.signal(MODEL_WAIT_SIGNAL, model_wait, rpc_timeout=SIGNAL_TIMEOUT)

    def _now(self) -> datetime:
        # clocks of two machines may differ by more than a wait: add the time passed here to the server's start
        return activity.info().started_time + timedelta(seconds=time.monotonic() - self._took_up)

    def _waited(self, until: datetime) -> float:
        return (until - self.begun_at).total_seconds()


def doubles_within(start: float, end: float) -> bool:
    """Return whether 5, 10, 20 … seconds (FIRST_REPORT_SECONDS, doubled) lie after `start` and up to `end`."""
    mark = FIRST_REPORT_SECONDS
    while mark <= start:
        mark *= 2
    return mark <= end
