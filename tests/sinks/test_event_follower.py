"""How a stream is followed for a sink whose workers are away now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast
from uuid import uuid4

import pytest
from temporalio.api.enums.v1 import EventType, WorkflowExecutionStatus
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse

from holdfast.core.wire.contracts import EventsPage
from holdfast.core.wire.event_envelope import NumberedEvent
from holdfast.core.wire.sink_contracts import SinkStart
from holdfast.sinks import JsonLines, delivery, event_follower
from holdfast.sinks.delivery import SINK_FOLLOW_TRIES_MAX, Delivery
from holdfast.sinks.event_follower import EventFollower, Readers
from holdfast.sinks.event_stream import EventStream
from holdfast.storage.object_store import Objects
from holdfast.storage.records import Records
from tests.sinks.examples import EXECUTION, NUMBERED

EVENT = next(each.event for each in NUMBERED if EventStream.of(each).key == EXECUTION)


class Run:
    """A run that has one event more each time its worker has told those before, up to `total`.

    Its worker tells nothing as often as `failures` says before each time.
    """

    namespace = "default"

    def __init__(self, total: int, *, failures: int, paused: bool = False) -> None:
        self.total, self.length, self.paused = total, 1, paused
        self.grown = asyncio.Event()
        self.failures = self._left = failures

    @property
    def over(self) -> bool:
        return self.length == self.total

    def get_workflow_handle(self, *_: object, **__: object) -> Run:
        return self

    def fetch_history_events(self, **_: object) -> Pages:
        return Pages(self)

    async def described(self, _: str) -> DescribeWorkflowExecutionResponse:
        name = "COMPLETED" if self.over else "PAUSED" if self.paused else "RUNNING"
        status = WorkflowExecutionStatus.Value(f"WORKFLOW_EXECUTION_STATUS_{name}")
        return DescribeWorkflowExecutionResponse(workflow_execution_info=WorkflowExecutionInfo(status=status))

    async def describe(self, **_: object) -> None:
        raise ValueError("8 is not a valid WorkflowExecutionStatus")  # the SDK's own, of a paused one

    async def first_run(self, _: int, **__: object) -> str:
        return "run"

    async def is_closed(self, _: str) -> bool:
        return self.over

    async def page(self, _: str, place: int, **__: object) -> EventsPage:
        if self._left:
            self._left -= 1
            raise TimeoutError
        events, self._left = (cast("Any", EVENT),) * (self.length - place), self.failures
        told = EventsPage(first=0, start=place, events=events, total=self.length)
        self.length = min(self.total, self.length + 1)
        self.grown.set()
        return told


class Pages:
    """Its history from the beginning, an event per page; the last is its end."""

    next_page_token = b"what comes next"

    def __init__(self, run: Run) -> None:
        self._run = run
        self._read = 0
        self.current_page: Sequence[HistoryEvent] = ()

    async def fetch_next_page(self) -> None:
        while self._read >= self._run.length:
            self._run.grown.clear()
            await self._run.grown.wait()
        self._read += 1
        completed, over = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED, self._read == self._run.total
        kind = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED if over else completed
        self.current_page = [HistoryEvent(event_id=self._read, event_type=kind)]


def no_pause(_: int) -> float:
    return 0.0


async def read_through(run: Run, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[str]]:
    """Read all of a run for a sink; return how many events came, and what was put aside instead."""

    def reader(*_: object) -> Run:
        return run

    monkeypatch.setattr(event_follower, "READ_SECONDS", 0.0)
    monkeypatch.setattr(delivery, "backoff", no_pause)
    monkeypatch.setattr(Readers, "reader", reader)
    aside: list[str] = []

    async def put_aside(name: str, *_: object) -> str:
        aside.append(name)
        return name

    records, start = Records(Objects(f"memory://{uuid4()}")), SinkStart(consumer="test", task_queue="queue")
    inner = cast("Any", Delivery(cast("Any", run), records, start, JsonLines("unused", name="test")))
    monkeypatch.setattr(inner._place, "put_aside", put_aside)
    following = EventFollower(inner._readers, EventStream(EXECUTION), 0, inner._waiting_put)
    async with asyncio.timeout(30):
        await inner._untired(following, following.follow)
    return inner._waiting.qsize(), aside


async def test_failures_between_which_a_run_was_read_are_not_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long session outlives many deploys, each of which may cost a reading; its last events are told all the same."""
    run = Run(SINK_FOLLOW_TRIES_MAX + 2, failures=1)
    assert await read_through(run, monkeypatch) == (run.total, [])


async def test_a_paused_run_that_cannot_be_read_for_long_is_told_later(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(2, failures=SINK_FOLLOW_TRIES_MAX + 3, paused=True)
    run.failures = 0
    assert await read_through(run, monkeypatch) == (run.total, [])


async def test_a_run_that_has_ended_and_is_never_told_is_put_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await read_through(Run(1, failures=1_000), monkeypatch) == (0, [EXECUTION])


class Silent(Run):
    """A run whose build has no workers."""

    async def page(self, _: str, place: int, **__: object) -> EventsPage:
        await asyncio.Event().wait()
        return await super().page(_, place)


async def test_runs_that_no_worker_tells_keep_no_other_from_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    served, unserved, told = Run(3, failures=0), [str(uuid4()) for _ in range(20)], list[int]()

    def reader(_: Readers, stream: EventStream) -> Run:
        return Silent(3, failures=0) if stream.workflow_id in unserved else served

    async def put(event: NumberedEvent) -> None:
        told.append(event.sequence)

    def following(id_: str) -> EventFollower:
        return EventFollower(readers, EventStream(id_), 0, put)

    monkeypatch.setattr(event_follower, "READ_SECONDS", 0.0)
    monkeypatch.setattr(event_follower, "PAGE_SECONDS_MAX", 0.05)
    monkeypatch.setattr(Readers, "reader", reader)
    readers = Readers(cast("Any", served))
    silent = [following(each) for each in unserved]
    first = await asyncio.gather(*(each.follow() for each in silent), return_exceptions=True)
    assert {type(each) for each in first} == {TimeoutError}
    monkeypatch.setattr(event_follower, "PAGE_SECONDS_MAX", 3_600.0)
    again = [asyncio.create_task(each.follow()) for each in silent]
    await asyncio.sleep(0.1)  # they are being read now, as many as may be at a time
    try:
        async with asyncio.timeout(10):
            await following(EXECUTION).follow()
    finally:
        for each in again:
            each.cancel()
        await asyncio.gather(*again, return_exceptions=True)
    assert told == [1, 2, 3]
