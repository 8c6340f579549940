"""The activity that delivers events to a sink of this worker, as long as the server has assigned it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.metered_sink import MeteredSink
from holdfast.core.base.errors import HoldfastError
from holdfast.core.wire.contracts import WORKER_SHUTDOWN
from holdfast.core.wire.sink_contracts import DELIVER_ACTIVITY, HEARTBEAT_SECONDS, TURN_SECONDS, SinkStart
from holdfast.sinks.delivery import Delivery
from holdfast.sinks.sink import Sink
from holdfast.storage.records import Records

BEAT_SECONDS: Final = HEARTBEAT_SECONDS / 5


class EventSinks:
    """A worker's sinks, by name."""

    def __init__(self, sinks: Iterable[Sink], records: Records) -> None:
        self._sinks: Final = {each.name: MeteredSink(each) for each in sinks}
        self._records = records

    @activity.defn(name=DELIVER_ACTIVITY)
    async def deliver(self, start: SinkStart) -> None:
        """Deliver for TURN_SECONDS (a day), until this worker shuts down, or until cancelled."""
        delivery = Delivery(
            activity.client(),
            self._records,
            start,
            self._sinks[start.consumer],
            _server_clock(activity.info().started_time),
        )
        delivering = asyncio.create_task(delivery.run())
        ending = asyncio.create_task(activity.wait_for_worker_shutdown())
        beating = asyncio.create_task(_beat())
        try:
            await asyncio.wait((delivering, ending), timeout=TURN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over = delivering.done()
            for task in (delivering, ending):
                task.cancel()
            await asyncio.gather(delivering, ending, return_exceptions=True)
            beating.cancel()
        if over:
            _raise(delivering)
        if activity.is_worker_shutdown():
            raise ApplicationError(
                "the worker shuts down",
                type=WORKER_SHUTDOWN,
                category=ApplicationErrorCategory.BENIGN,
                next_retry_delay=timedelta(milliseconds=100),
            )


def _server_clock(started_at: datetime) -> Callable[[], datetime]:
    """Return what tells the server's time, which says when the attempt that begins now has begun."""
    began = time.monotonic()
    return lambda: started_at + timedelta(seconds=time.monotonic() - began)


def _raise(delivering: asyncio.Task[None]) -> None:
    try:
        delivering.result()
    except HoldfastError as error:
        raise ApplicationError(error.message, type=type(error).__name__) from None


async def _beat() -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(BEAT_SECONDS)
