"""A cache of the events of closed Temporal runs, shared by all watchers of one client.

A worker that is asked about a run that has ended goes through its whole history again, up to a second of work; and all
who watch a run live ask when it has ended. What such a run tells never changes, so one answer serves them all.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar
from weakref import WeakValueDictionary

from holdfast.core.base.frozen import replace
from holdfast.core.wire.contracts import EventsPage
from holdfast.core.wire.session_events import SessionEventsPage

PAGES_KEPT_MAX: Final = 8
"""How many pages are kept, the latest: each has up to PAGE_BYTES_MAX of events."""

BEHIND: Final = 64
"""So many events before its own place are read, too, for other watchers that are not as far."""

PageT = TypeVar("PageT", bound=EventsPage | SessionEventsPage)

Ask = Callable[[int], Awaitable[PageT]]
"""Asks a worker for the run's events from a place on."""


class ClosedRuns(Generic[PageT]):
    """Pages of runs that have ended."""

    def __init__(self) -> None:
        self._pages: OrderedDict[tuple[str, int], PageT] = OrderedDict()
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def page(self, run_id: str, place: int, ask: Ask[PageT]) -> PageT:
        """Return the run's events from `place` on, as many as there are at hand."""
        lock = self._asking.setdefault(run_id, asyncio.Lock())
        async with lock:  # who comes while another asks waits for the same answer
            cached = self._cached(run_id, place)
            if cached is None:
                cached = await ask(max(0, place - BEHIND))
                if not _serves(cached, place):  # so large that it ends before our place
                    cached = await ask(place)
                self._store(run_id, cached)
        return _from(cached, place)

    def _cached(self, run_id: str, place: int) -> PageT | None:
        own = (page for (each, _), page in self._pages.items() if each == run_id)
        return next((page for page in own if _serves(page, place)), None)

    def _store(self, run_id: str, page: PageT) -> None:
        self._pages[run_id, page.start] = page
        self._pages.move_to_end((run_id, page.start))
        while len(self._pages) > PAGES_KEPT_MAX:
            self._pages.popitem(last=False)


def _serves(page: EventsPage | SessionEventsPage, place: int) -> bool:
    """Whether the page has what is at `place`, or shows that there is nothing."""
    end = page.start + len(page.events)
    return page.start <= max(place, page.first) and (place < end or end >= page.total)


def _from(page: PageT, place: int) -> PageT:
    passed = min(max(0, place - page.start), len(page.events))
    return replace(page, start=page.start + passed, events=page.events[passed:])
