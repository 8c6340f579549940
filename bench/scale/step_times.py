"""How long steps and waits took, by the server's own times in the histories of runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from bench.report import quantile
from holdfast.core.wire.contracts import INFERENCE_ACTIVITY

READ_AT_ONCE: Final = 20


class Times(NamedTuple):
    """Seconds: of the steps, and from the moment that tasks were scheduled until a worker began them."""

    steps: list[float]
    workflow_tasks: list[float]
    activity_tasks: list[float]


class Spread(NamedTuple):
    """The median, the 95th percentile and the longest, in milliseconds."""

    p50: float
    p95: float
    longest: float


def spread(seconds: Sequence[float]) -> Spread:
    """Return the spread of some times."""
    marks = (quantile(seconds, 0.5), quantile(seconds, 0.95), max(seconds, default=0.0))
    return Spread(*(round(1_000 * each, 1) for each in marks))


def times_of(events: Iterable[HistoryEvent]) -> Times:
    """Read a run's history. A step lasts from the scheduling of its model call until that of the next one."""
    moments: dict[int, float] = {}
    calls: list[float] = []
    found = Times([], [], [])
    for event in events:
        moments[event.event_id] = event.event_time.ToNanoseconds() / 1e9
        if event.HasField("activity_task_scheduled_event_attributes"):
            if event.activity_task_scheduled_event_attributes.activity_type.name == INFERENCE_ACTIVITY:
                calls.append(moments[event.event_id])
        elif event.HasField("activity_task_started_event_attributes"):
            scheduled = event.activity_task_started_event_attributes.scheduled_event_id
            found.activity_tasks.append(moments[event.event_id] - moments[scheduled])
        elif event.HasField("workflow_task_started_event_attributes"):
            scheduled = event.workflow_task_started_event_attributes.scheduled_event_id
            found.workflow_tasks.append(moments[event.event_id] - moments[scheduled])
    found.steps.extend(later - earlier for earlier, later in pairwise(calls))
    return found


async def read(client: Client, run_ids: Sequence[str]) -> Times:
    """Return the times of some runs together."""
    whole = Times([], [], [])
    at_once = asyncio.Semaphore(READ_AT_ONCE)

    async def one(run_id: str) -> Times:
        async with at_once:
            history = await client.get_workflow_handle(run_id).fetch_history()
        return times_of(history.events)

    for each in await asyncio.gather(*map(one, run_ids)):
        for all_of_them, some in zip(whole, each, strict=True):
            all_of_them.extend(some)
    return whole
