"""When a history that is followed has news: between workflow tasks, so that whoever asks the run then disturbs none."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from holdfast.connection import history_poll
from holdfast.connection.history_poll import History

BEGUN = (EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED, EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED)
DONE = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
CALL = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
CALLED = EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
ENDED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take a second between two pages."""
    monkeypatch.setattr(history_poll, "TASK_SECONDS_MAX", 3_600.0)


class Pages:
    """A server whose answers to a long poll are these pages."""

    def __init__(self, *pages: Sequence[int]) -> None:
        self.left = [*pages]
        self.current_page: list[HistoryEvent] = []
        self.next_page_token: bytes | None = b"what comes next"
        self._number = 0

    def get_workflow_handle(self, *_: object, **__: object) -> Pages:
        return self

    def fetch_history_events(self, **_: object) -> Pages:
        return self

    async def fetch_next_page(self) -> None:
        self.current_page = [self._event(each) for each in self.left.pop(0)]

    def _event(self, kind: int) -> HistoryEvent:
        self._number += 1
        return HistoryEvent(event_id=self._number, event_type=cast("Any", kind))


def followed(pages: Pages) -> History:
    return History(cast("Any", pages), "run", "", closed=False)


async def test_a_run_that_rests_after_a_task_has_news_at_once() -> None:
    pages = Pages((*BEGUN,), (DONE, CALL), (CALLED, *BEGUN))
    history = followed(pages)
    await history.news()
    assert (history.length, history.in_task, len(pages.left)) == (4, False, 1)


@pytest.mark.parametrize("end", [DONE, EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED, ENDED])
async def test_the_end_of_the_task_that_has_begun_meanwhile_is_waited_for(end: int) -> None:
    pages = Pages((*BEGUN, DONE, CALL, CALLED, BEGUN[0]), (BEGUN[1],), (end,))
    history = followed(pages)
    await history.news()
    assert (history.length, history.over, pages.left) == (8, end == ENDED, [])


async def test_a_task_that_has_nothing_before_it_is_no_news() -> None:
    pages = Pages((*BEGUN,), (EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT,), (*BEGUN,), (DONE,), (CALL,))
    history = followed(pages)
    await history.news()
    assert pages.left == [(CALL,)]


async def test_a_row_of_tasks_does_not_keep_news_back_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_poll, "TASK_SECONDS_MAX", 0.0)
    pages = Pages((*BEGUN, DONE, CALL, CALLED, *BEGUN), (DONE, CALL, CALLED, *BEGUN))
    history = followed(pages)
    await history.news()
    assert (history.in_task, len(pages.left)) == (True, 1)
    await history.news()
    assert pages.left == []


class PausedPages(Pages):
    """A server that tells all again instead of waiting: the run is paused. When no page is left, it is not any more."""

    async def fetch_next_page(self) -> None:
        self._number = 0
        await super().fetch_next_page()
        self.next_page_token = b"what comes next" if not self.left else None


async def test_a_paused_run_is_asked_once_in_a_while_and_has_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_poll, "PAUSED_SECONDS", rest := 0.01)
    first = (*BEGUN, DONE, CALL)
    pages = PausedPages(*([first] * 20), (*first, CALLED, *BEGUN, DONE))
    history = followed(pages)
    await history.news()
    assert (history.length, len(pages.left)) == (4, 20)
    began = time.monotonic()
    await history.news()
    assert (history.length, pages.left) == (8, [])
    assert time.monotonic() - began > 19 * rest
