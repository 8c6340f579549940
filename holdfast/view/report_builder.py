"""Gathering all that can be told of a run into one report. Writes nothing."""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime

from holdfast.client.holdfast import Holdfast
from holdfast.client.run_source import RunSource
from holdfast.client.run_trees import tree
from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import EXPORTED_EVENTS_MAX
from holdfast.core.base.errors import ExecutionNotFound, InvalidInput
from holdfast.core.wire.execution_events import AnyObserved
from holdfast.view.rows import SubagentRow, subagent_rows, subagents_told
from holdfast.view.run_export import Report, report


async def read_report(holdfast: Holdfast, execution_id: str) -> Report:
    """Return the report on a run, under way or ended, also on one that the server has forgotten.

    Raises InvalidInput, ExecutionNotFound, ServerUnavailable where it is under way and no worker answers.
    """
    run = await RunSource.found(holdfast, execution_id)
    state = await run.whole()
    if state.execution is None:
        raise InvalidInput(f"run {run.execution_id} has not begun yet; export it in a moment")
    told = await run.tells_events()
    events, left_out = await _events(run) if told else (await run.retold_events(), 0)
    return report(
        state,
        run.agent,
        datetime.now(UTC),
        told_by=run.source,
        subagents=await _subagents(run, state),
        events=events,
        retold=not told,
        events_left_out=left_out,
    )


async def _events(run: RunSource) -> tuple[list[AnyObserved], int]:
    """Return the events so far, and how many there are beyond EXPORTED_EVENTS_MAX."""
    kept: list[AnyObserved] = []
    left_out = 0
    async with aclosing(run.events()) as events:
        async for event in events:
            if len(kept) < EXPORTED_EVENTS_MAX:
                kept.append(event)
            else:
                left_out += 1
    return kept, left_out


async def _subagents(run: RunSource, state: AgentState) -> tuple[SubagentRow, ...]:
    """Return the runs below; where the server has forgotten them, what the run's own state knows of them."""
    told = subagents_told(state)
    try:
        found = subagent_rows((await tree(run.holdfast, run.execution_id)).children)
    except ExecutionNotFound:
        return told
    listed = {each.execution_id for each in found}
    return (*found, *(each for each in told if each.execution_id not in listed))
