"""The runs that one execution has been continued in, read back from the server: their histories and sizes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from temporalio.client import Client, WorkflowHistory

from bench.task import TOOL

RUNS_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class Run:
    """What one run has left; `steps` are the tool calls it began. `seconds` is how long it was open."""

    events: int
    bytes: int
    steps: int
    seconds: float


async def histories(client: Client, execution_id: str) -> AsyncIterator[WorkflowHistory]:
    """Yield the histories of all runs of an execution that has ended, from the first to the last."""
    latest = await client.get_workflow_handle(execution_id).fetch_history()
    run_id = latest.events[0].workflow_execution_started_event_attributes.first_execution_run_id
    for _ in range(RUNS_MAX):
        history = await client.get_workflow_handle(execution_id, run_id=run_id).fetch_history()
        yield history
        run_id = history.events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
        if not run_id:
            return
    raise RuntimeError(f"the execution {execution_id} has more than {RUNS_MAX:,} runs")


def measured(history: WorkflowHistory) -> Run:
    """Return the sizes of one run."""
    opened, closed = (history.events[place].event_time.ToNanoseconds() for place in (0, -1))
    return Run(
        events=len(history.events),
        bytes=sum(event.ByteSize() for event in history.events),
        steps=steps_run(history),
        seconds=(closed - opened) / 1e9,
    )


def steps_run(history: WorkflowHistory) -> int:
    """Count the tool calls that were scheduled."""
    return sum(event.activity_task_scheduled_event_attributes.activity_type.name == TOOL for event in history.events)


def largest(runs: Sequence[Run]) -> tuple[int, int]:
    """Return the most events and the most bytes that a run has."""
    return max(run.events for run in runs), max(run.bytes for run in runs)
