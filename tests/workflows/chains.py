"""The chain of runs that one execution has become, each with its own history."""

from __future__ import annotations

from temporalio.client import WorkflowHistory

from holdfast.client import Holdfast

RUNS_MAX = 2_000
"""The longest chain that is walked."""


async def chain_of(client: Holdfast, execution_id: str) -> list[WorkflowHistory]:
    """Return the histories of all runs of an execution that has ended, the first one first."""
    latest = client.temporal.get_workflow_handle(execution_id)
    run_id: str | None = (await latest.describe()).raw_description.workflow_execution_info.first_run_id
    found: list[WorkflowHistory] = []
    while run_id and len(found) < RUNS_MAX:
        history = await client.temporal.get_workflow_handle(execution_id, run_id=run_id).fetch_history()
        found.append(history)
        ended = history.events[-1]
        attributes = ended.workflow_execution_continued_as_new_event_attributes
        run_id = attributes.new_execution_run_id or None
    return found
