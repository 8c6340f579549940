"""What a run told that has ended is read once for all who watch it, and bounded in what is kept."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from holdfast.connection.event_page_cache import BEHIND, PAGES_KEPT_MAX, ClosedRuns
from holdfast.core.wire.contracts import EventsPage
from holdfast.core.wire.execution_events import AgentStepStarted, AnyObserved

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def event(number: int) -> AnyObserved:
    return AgentStepStarted("agent", "run", None, NOW, number)


class Worker:
    """Has the events of a run from `first` up to `total`, and gives so many at a time."""

    def __init__(self, total: int, first: int = 0, page: int = 1_000) -> None:
        self.total, self.first, self.page = total, first, page
        self.asked: list[int] = []

    async def __call__(self, place: int) -> EventsPage:
        self.asked.append(place)
        await asyncio.sleep(0)
        start = min(max(place, self.first), self.total)
        events = tuple(event(number) for number in range(start, min(start + self.page, self.total)))
        return EventsPage(first=self.first, start=start, events=events, total=self.total)


async def read(runs: ClosedRuns[EventsPage], worker: Worker, place: int, run_id: str = "run") -> list[int]:
    """The numbers of all events from a place on."""
    numbers: list[int] = []
    while True:
        page = await runs.page(run_id, place, worker)
        assert page.start == min(max(place, worker.first), worker.total)
        numbers += [each.step_number for each in page.events]
        place = page.start + len(page.events)
        if place >= page.total:
            return numbers


async def test_watchers_at_about_the_same_place_cost_one_question() -> None:
    runs, worker = ClosedRuns[EventsPage](), Worker(500)
    places = [500, 480, 499, 470, 437, 500]
    told = await asyncio.gather(*(read(runs, worker, place) for place in places))
    assert told == [list(range(place, 500)) for place in places]
    assert worker.asked == [500 - BEHIND]


@pytest.mark.parametrize("page", [1, 7, BEHIND, BEHIND + 1, 1_000])
@pytest.mark.parametrize("first", [0, 90])
@pytest.mark.parametrize("place", [0, 1, 95, 199, 200, 300])
async def test_every_event_is_read_once_however_large_the_pages_are(place: int, first: int, page: int) -> None:
    worker = Worker(200, first, page)
    assert await read(ClosedRuns[EventsPage](), worker, place) == list(range(max(place, first), 200))


async def test_a_question_that_fails_is_asked_again_by_the_next() -> None:
    runs, worker = ClosedRuns[EventsPage](), Worker(3)

    async def fails(place: int) -> EventsPage:
        raise TimeoutError(place)

    with pytest.raises(TimeoutError):
        await runs.page("run", 0, fails)
    assert await read(runs, worker, 0) == [0, 1, 2]


async def test_only_the_latest_pages_are_kept() -> None:
    runs, worker = ClosedRuns[EventsPage](), Worker(3)
    for number in range(PAGES_KEPT_MAX + 1):
        await read(runs, worker, 0, f"run {number}")
    asked = len(worker.asked)
    await read(runs, worker, 0, f"run {PAGES_KEPT_MAX}")
    assert len(worker.asked) == asked
    await read(runs, worker, 0, "run 0")
    assert len(worker.asked) == asked + 1
