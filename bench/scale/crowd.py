"""Runs that all start at once: whether all of them end, how many are open together, how long tasks wait."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Final

from bench.scale.figures import Circumstances, Crowd
from bench.scale.ground import Ground
from bench.scale.step_times import read, spread
from bench.scale.throughput import PAGE_BYTES, per_step
from bench.stage import READER, fresh_id
from bench.stop_crowd import crowd
from bench.task import Task

RUNS: Final = 2_000
STEPS: Final = 1
WORKERS: Final = 2
STARTS_AT_ONCE: Final = 200
SAMPLES: Final = 200
STATUSES: Final = {2: "completed", 3: "failed", 4: "cancelled", 5: "terminated", 7: "timed out"}
OPEN_SHUT: Final = (
    "SELECT extract(epoch FROM start_time), extract(epoch FROM close_time), status FROM executions_visibility "
    "WHERE workflow_id = ANY(string_to_array('{ids}', ' '))"
)
"""What visibility has of runs: a query of its own, as a list of thousands would come in pages."""


async def crowded(ground: Ground, runs: int, steps: int, measured: Circumstances) -> Crowd:
    """Start them all, and wait for their ends. `measured` is completed by the caller."""
    ids, task = [fresh_id() for _ in range(runs)], Task(steps, PAGE_BYTES)
    closed, cpu, refused, memory = await ground.closed(), ground.cpu_seconds(), ground.refusals(), ground.resident()
    began = time.perf_counter()
    starts = (ground.client.start(READER, task.question, execution_id=each) for each in ids)
    await crowd(starts, STARTS_AT_ONCE)
    started = time.perf_counter()
    await ground.until_closed(closed + runs)
    used = ground.cpu_seconds()
    rows = ground.cluster.postgres.query(OPEN_SHUT.format(ids=" ".join(ids)), "temporal_visibility")
    spans = [(float(opened), float(shut)) for opened, shut, _ in rows]
    await _check(ground, task, ids[:: max(1, runs // SAMPLES)])
    times = await read(ground.client.temporal, ids[:: max(1, runs // SAMPLES)])
    return Crowd(
        measured=measured,
        runs=runs,
        steps=steps,
        workers=len(ground.workers),
        start_seconds=started - began,
        seconds=max(shut for _, shut in spans) - min(opened for opened, _ in spans),
        in_flight=most_at_once(spans),
        ended=dict(Counter(STATUSES.get(int(status), status) for _, _, status in rows)),
        workflow_task_ms=spread(times.workflow_tasks),
        activity_task_ms=spread(times.activity_tasks),
        step_ms=spread(times.steps),
        cpu_ms=per_step(cpu, used, runs * steps, {}),
        refusals=dict(ground.refusals() - refused),
        memory_before=tuple(memory),
        memory_after=tuple(ground.resident()),
    )


def most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    """Return how many of some spans of time overlap at most; one that ends as another begins does not."""
    edges = sorted(edge for opened, shut in spans for edge in ((opened, 1), (shut, -1)))
    most = now = 0
    for _, change in edges:
        now += change
        most = max(most, now)
    return most


async def _check(ground: Ground, task: Task, ids: list[str]) -> None:
    async def answer(run_id: str) -> str:
        return (await ground.client.result(run_id)).messages[-1].text

    wrong = [each for each in await crowd(map(answer, ids), 20) if each != task.answer]
    if wrong:
        raise RuntimeError(f"{len(wrong)} of {len(ids)} runs have not done their task; one said {wrong[0]!r}")
