"""The tree of a run: the runs of its subagents, and what each has done. Changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError
from temporalio.client import WorkflowExecution, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from holdfast.client.execution_summaries import ExecutionSummary, summary
from holdfast.client.id_lookup import described_run
from holdfast.connection.executions import described
from holdfast.connection.rpc_errors import answered
from holdfast.connection.workflow_reader import ASK_TIMEOUT, listed
from holdfast.core.base.bounds import DEPTH_MAX
from holdfast.core.base.errors import HoldfastError
from holdfast.core.base.usage import Usage
from holdfast.core.wire.contracts import AGENT_EXECUTION
from holdfast.core.wire.result_contracts import ExecutionFailure, ExecutionResult
from holdfast.core.wire.workflow_ids import type_filter
from holdfast.view.run_view import RunView

if TYPE_CHECKING:
    from holdfast.client.runs import Runs

TREE_RUNS_MAX: Final = 2_000
"""The most runs that one reading of a run's tree shows."""

ASKED_AT_ONCE: Final = 8
"""How many runs are asked for their facts side by side."""

PARENTS_AT_ONCE: Final = 50
"""How many runs' subagents one listing asks for."""


async def tree(client: Runs, execution_id: str) -> RunView:
    """Return a run, under way or ended, with the runs of its subagents as it is now; at most TREE_RUNS_MAX runs.

    Which runs there are, and the facts of those that have ended, the server knows by itself as long as it keeps them;
    those under way are asked for theirs, by query, and count as nothing where no worker answers.

    Raises InvalidInput, ExecutionNotFound, ServerUnavailable.
    """
    execution_id = await client.find_run(execution_id)
    top = await described_run(client.temporal, execution_id)
    children: dict[str, list[WorkflowExecution]] = {}
    level: list[WorkflowExecution] = [top]
    runs: list[WorkflowExecution] = [top]
    cut = set[str]()
    for _ in range(DEPTH_MAX + 1):
        ids = [each.id for each in level]
        level = []
        async for each in _children(client, ids):
            parent = each.parent_id or ""
            if len(runs) >= TREE_RUNS_MAX:
                cut.add(parent)
                continue
            children.setdefault(parent, []).append(each)
            level.append(each)
            runs.append(each)
        if not level:
            break
    at_once = asyncio.Semaphore(ASKED_AT_ONCE)
    read = await asyncio.gather(*(_read(client, each, at_once) for each in runs))
    return _grown(top.id, children, {each.execution_id: each for each in read}, cut)


def to_dict(run: RunView) -> dict[str, Any]:
    """Return the tree as JSON holds it."""
    return {
        "execution_id": run.execution_id,
        "agent": run.agent,
        "status": run.status,
        "steps": run.step_count,
        "usage": {**run.usage.model_dump(), "total_tokens": run.usage.total_tokens},
        "cost": run.cost,
        "unpriced": list(run.unpriced),
        "started_at": run.started_at and run.started_at.isoformat(),
        "seconds": run.seconds,
        "why": run.why,
        "children": [to_dict(each) for each in run.children],
        "more": run.more,
    }


def _grown(
    execution_id: str,
    children_of: Mapping[str, Sequence[WorkflowExecution]],
    read: Mapping[str, RunView],
    cut: set[str],
) -> RunView:
    below = sorted(children_of.get(execution_id, ()), key=lambda each: each.start_time)
    children = tuple(_grown(each.id, children_of, read, cut) for each in below)
    return replace(read[execution_id], children=children, more=execution_id in cut)


async def _children(client: Runs, parents: Sequence[str]) -> AsyncIterator[WorkflowExecution]:
    for start in range(0, len(parents), PARENTS_AT_ONCE):
        names = ", ".join(f"'{each}'" for each in parents[start : start + PARENTS_AT_ONCE])
        query = f"ParentWorkflowId IN ({names}) AND {type_filter(AGENT_EXECUTION)}"
        query = f"{query} AND ExecutionStatus != 'ContinuedAsNew'"  # a run that went on in a new one is none of its own
        for each in await listed(client.temporal, query, TREE_RUNS_MAX):
            yield each


async def _read(client: Runs, info: WorkflowExecution, at_once: asyncio.Semaphore) -> RunView:
    """Return what a run has done, as far as anybody can tell."""
    async with at_once:
        if info.status is WorkflowExecutionStatus.RUNNING:  # the list can be late, the run itself is not
            info = await answered(described(client.temporal, info.id, rpc_timeout=ASK_TIMEOUT), info.id)
        run = _listed(info)
        if info.status is WorkflowExecutionStatus.RUNNING:
            return await _so_far(client, run)
        ended = client.temporal.get_workflow_handle(info.id, run_id=info.run_id, result_type=ExecutionResult)
        try:
            result: ExecutionResult = await answered(ended.result(follow_runs=False, rpc_timeout=ASK_TIMEOUT), info.id)
        except WorkflowFailureError as error:
            return _failed(run, summary(info), error)
        stopped = "" if result.status == "completed" else result.why
        return replace(
            run,
            step_count=result.step_count,
            usage=result.used.usage,
            cost=result.used.cost,
            unpriced=result.used.unpriced,
            why=stopped,
        )


def _listed(workflow: WorkflowExecution) -> RunView:
    """Return what the server's list has of a run; nothing yet of what it did."""
    line = summary(workflow)
    until = line.closed_at or datetime.now(UTC)
    return RunView(
        execution_id=workflow.id,
        agent=line.agent or "",
        status=line.status,
        started_at=line.started_at,
        seconds=(until - line.started_at).total_seconds(),
    )


async def _so_far(client: Runs, run: RunView) -> RunView:
    try:
        facts = await client.debug(run.execution_id)
        usage, waiting = Usage.model_validate(facts["usage"]), facts["waiting"]
        why = f"waits for a decision about {', '.join(map(str, waiting))}" if waiting else ""
        used: dict[str, Any] = {"usage": usage, "cost": facts["cost"], "unpriced": tuple(facts["unpriced"])}
        return replace(run, step_count=facts["steps"], why=why, **used)
    except (HoldfastError, KeyError, ValidationError):
        return run


def _failed(run: RunView, line: ExecutionSummary, error: WorkflowFailureError) -> RunView:
    cause = error.cause
    if not (isinstance(cause, ApplicationError) and cause.details):
        return replace(run, why=f"{type(cause).__name__}: {cause}")
    try:
        failure = ExecutionFailure.model_validate(cause.details[0])
    except ValidationError:
        return replace(run, why=cause.message)
    used: dict[str, Any] = {"usage": failure.used.usage, "cost": failure.used.cost, "unpriced": failure.used.unpriced}
    return replace(run, step_count=line.steps or 0, why=failure.message, **used)
