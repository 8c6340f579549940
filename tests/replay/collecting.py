"""Everything one execution has left on the server: each run of it and of its subagents', cleaned and named."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress

from temporalio.client import Client, WorkflowFailureError, WorkflowHistory

from tests.replay.archive import Recorded
from tests.replay.cleaning import clean
from tests.replay.outside import taken_out

RUNS_MAX = 100
"""The most runs that one execution is recorded with, however often it is continued."""


async def recorded(client: Client, place: str, name: str, execution_id: str) -> list[Recorded]:
    """Return every run of an execution that ends, and of its subagents, under names that begin with `name`.

    `place` is the URL of the storage of large data.
    """
    found: list[Recorded] = []
    children: list[str] = []
    async for number, history in _numbered(client, execution_id):
        run_name = name if number == 1 else f"{name}, run {number}"
        kept = clean(history.to_json_dict())
        found.append(Recorded(run_name, kept, await taken_out(kept, place)))
        children += _children(history)
    for number, child in enumerate(dict.fromkeys(children), 1):
        found += await recorded(client, place, f"{name}, subagent {number}", child)
    return found


async def _numbered(client: Client, execution_id: str) -> AsyncIterator[tuple[int, WorkflowHistory]]:
    """Yield the runs of one workflow id, from the first to the one that ended it."""
    latest = client.get_workflow_handle(execution_id)
    with suppress(WorkflowFailureError):  # how it ends is part of what is recorded
        await latest.result()
    run_id = (await latest.fetch_history()).events[0].workflow_execution_started_event_attributes.first_execution_run_id
    for number in range(1, RUNS_MAX + 1):
        history = await client.get_workflow_handle(execution_id, run_id=run_id).fetch_history()
        yield number, history
        run_id = history.events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
        if not run_id:
            return
    raise RuntimeError(f"{execution_id} has more than {RUNS_MAX} runs")


def _children(history: WorkflowHistory) -> list[str]:
    """Return the ids of the subagents' executions that this run has begun."""
    begun = (event.child_workflow_execution_started_event_attributes for event in history.events)
    return [each.workflow_execution.workflow_id for each in begun if each.workflow_execution.workflow_id]
