"""`BatchDelivery`: delivers one batch to one sink, and retries until it is accepted or put aside."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from holdfast.core.base.bounds import SINK_REFUSALS_MAX, SINK_TRIES_MAX
from holdfast.core.wire.event_envelope import NumberedEvent
from holdfast.sinks.position import ConsumerPosition
from holdfast.sinks.sink import Batch, Sink, SinkAway, SinkRefused

LOGGER: Final = logging.getLogger("holdfast.sinks")

BACKOFF_SECONDS_MAX: Final = 60.0
BACKOFF_SECONDS: Final = 0.5
"""How long to wait after a first failure; twice as long after each further one, up to that."""

WARNED_AT: Final = (0, 10)
"""After how many waits a failure that goes on is told."""


class BatchDelivery:
    """Offers what the place has as its batch."""

    def __init__(self, place: ConsumerPosition, sink: Sink, consumer: str) -> None:
        self._place, self._sink, self._consumer = place, sink, consumer

    async def deliver_batch(self, *, again: bool = False) -> None:
        """Deliver the batch of the place; what the sink does not take in the end is put aside."""
        if not self._place.batch:
            return
        if not again and len(self._place.batch) > 1:
            await self._place.save()
        tries_max = SINK_REFUSALS_MAX if self._place.singly else SINK_TRIES_MAX
        if len(self._place.batch) > 1 and not self._place.singly:
            events = self._place.batch
            problem = await self._deliver(events, again=again, tries_max=tries_max, refusals_max=1)
            if problem is None:
                self._place.delivered(events)
                return
            self._place.begin(events, singly=True)
            again = again or not isinstance(problem, SinkRefused)  # what was refused whole was not accepted
            tries_max = SINK_REFUSALS_MAX
        for each in self._place.batch:
            await self._place.save()
            problem = await self._deliver([each], again=again, tries_max=tries_max, refusals_max=SINK_REFUSALS_MAX)
            if problem is not None:
                await self._put_aside(each, problem)
            self._place.delivered([each])
        self._place.singly = False

    async def _put_aside(self, event: NumberedEvent, why: Exception) -> None:
        where = await self._place.put_aside(event.id, error_text(why), [event])
        LOGGER.warning("the sink %s refused event %s: %s; see %s", self._consumer, event.id, error_text(why), where)

    async def _deliver(
        self, events: Iterable[NumberedEvent], *, again: bool, tries_max: int, refusals_max: int
    ) -> Exception | None:
        """Offer events until they are taken; return why they are not, in the end."""
        batch, tries, refusals, waits = Batch(self._consumer, tuple(events), again), 0, 0, 0
        while True:
            wait: float | None = None
            try:
                await self._sink.deliver(batch)
            except SinkAway as error:
                wait = error.after
                self._warn(waits, error)
            except SinkRefused as error:
                refusals += 1
                if refusals >= refusals_max:
                    return error
            except Exception as error:  # noqa: BLE001  # whatever a sink raises
                tries += 1
                self._warn(waits, error)
                if tries >= tries_max:
                    return error
            else:
                return None
            batch = Batch(self._consumer, batch.events, again=True)
            waits += 1
            await asyncio.sleep(backoff(waits) if wait is None else wait)

    def _warn(self, waits: int, error: Exception) -> None:
        if waits in WARNED_AT:
            LOGGER.warning("the sink %s did not accept events: %s; trying again", self._consumer, error_text(error))


def backoff(tries: int) -> float:
    """Return how many seconds to wait after so many tries."""
    return min(BACKOFF_SECONDS_MAX, BACKOFF_SECONDS * 2.0 ** min(tries - 1, 16))


def error_text(error: Exception) -> str:
    """Return an error in a line."""
    return f"{type(error).__name__}: {error}"[:500]
