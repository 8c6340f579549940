"""The tree of an execution: which subagents' runs it has started, and what each has done. Changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError
from temporalio.client import WorkflowExecution, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from holdfast.client.execution_summaries import ExecutionSummary, summary
from holdfast.client.id_lookup import check_run
from holdfast.connection.event_page_reader import ASK_TIMEOUT
from holdfast.connection.rpc_errors import answered, refusal
from holdfast.core.base.bounds import DEPTH_MAX, TREE_RUNS_MAX
from holdfast.core.base.errors import HoldfastError
from holdfast.core.base.usage import NOTHING_USED, Usage
from holdfast.core.wire.contracts import AGENT_EXECUTION
from holdfast.core.wire.result_contracts import ExecutionFailure, ExecutionResult
from holdfast.core.wire.workflow_ids import type_filter

if TYPE_CHECKING:
    from holdfast.client.runs import Runs

ASKED_AT_ONCE: Final = 8
"""How many runs are asked for their facts side by side."""

PARENTS_AT_ONCE: Final = 50
"""How many runs' subagents one listing asks for."""


@dataclass(frozen=True, slots=True)
class ExecutionTree:
    """One run and, below it, those of the subagents it has started, the first to start first.

    `steps` are its own; `usage`, in tokens, and `cost`, in US dollars, also count its subagents that have ended.
    It began at `started_at`; `seconds` is how long it took, or has taken so far. `why` says why it was stopped or has
    failed, or which calls wait for a decision. `more` says that it has started others which are not shown, because
    there are more than TREE_RUNS_MAX runs.
    """

    execution_id: str
    agent: str
    status: str
    steps: int
    usage: Usage
    cost: float
    started_at: datetime
    seconds: float | None
    why: str = ""
    unpriced: tuple[str, ...] = ()
    """The models whose tokens have no known price; they are not in `cost`."""
    children: tuple[ExecutionTree, ...] = ()
    more: bool = False

    @property
    def runs(self) -> int:
        """How many runs the tree has, itself among them."""
        return 1 + sum(each.runs for each in self.children)


@dataclass(frozen=True, slots=True)
class _Facts:
    run: WorkflowExecution
    steps: int = 0
    usage: Usage = NOTHING_USED
    cost: float = 0.0
    why: str = ""
    unpriced: tuple[str, ...] = ()


async def tree(client: Runs, execution_id: str) -> ExecutionTree:
    """Return the tree below a run, under way or ended, as it is now; at most TREE_RUNS_MAX runs of it.

    Which runs there are, and the facts of those that have ended, the server knows by itself as long as it keeps them;
    those under way are asked for theirs, by query, and count as nothing where no worker answers.

    Raises InvalidInput, ExecutionNotFound, ServerUnavailable.
    """
    execution_id = await client.find_run(execution_id)
    described = client.temporal.get_workflow_handle(execution_id).describe(rpc_timeout=ASK_TIMEOUT)
    top = check_run(await answered(described, execution_id))
    found: dict[str, list[WorkflowExecution]] = {}
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
            found.setdefault(parent, []).append(each)
            level.append(each)
            runs.append(each)
        if not level:
            break
    at_once = asyncio.Semaphore(ASKED_AT_ONCE)
    facts = await asyncio.gather(*(_facts(client, each, at_once) for each in runs))
    return _grown(top.id, found, {told.run.id: told for told in facts}, cut)


def to_dict(found: ExecutionTree) -> dict[str, Any]:
    """Return the tree as JSON holds it."""
    below = [to_dict(each) for each in found.children]
    own: dict[str, Any] = {name: getattr(found, name) for name in ("execution_id", "agent", "status", "steps")}
    return {
        **own,
        "usage": {**found.usage.model_dump(), "total_tokens": found.usage.total_tokens},
        "cost": found.cost,
        "unpriced": list(found.unpriced),
        "started_at": found.started_at.isoformat(),
        "seconds": found.seconds,
        "why": found.why,
        "children": below,
        "more": found.more,
    }


def _grown(
    execution_id: str,
    found: Mapping[str, Sequence[WorkflowExecution]],
    facts: Mapping[str, _Facts],
    cut: set[str],
) -> ExecutionTree:
    own = facts[execution_id]
    told: ExecutionSummary = summary(own.run)
    below = sorted(found.get(execution_id, ()), key=lambda each: each.start_time)
    return ExecutionTree(
        execution_id=execution_id,
        agent=told.agent or "",
        status=told.status,
        steps=own.steps,
        usage=own.usage,
        cost=own.cost,
        started_at=told.started_at,
        seconds=((told.closed_at or datetime.now(UTC)) - told.started_at).total_seconds(),
        why=own.why,
        unpriced=own.unpriced,
        children=tuple(_grown(each.id, found, facts, cut) for each in below),
        more=execution_id in cut,
    )


async def _children(client: Runs, parents: Sequence[str]) -> AsyncIterator[WorkflowExecution]:
    for start in range(0, len(parents), PARENTS_AT_ONCE):
        names = ", ".join(f"'{each}'" for each in parents[start : start + PARENTS_AT_ONCE])
        query = f"ParentWorkflowId IN ({names}) AND {type_filter(AGENT_EXECUTION)}"
        query = f"{query} AND ExecutionStatus != 'ContinuedAsNew'"  # a run that went on in a new one is none of its own
        try:
            async for each in client.temporal.list_workflows(query, limit=TREE_RUNS_MAX, rpc_timeout=ASK_TIMEOUT):
                yield each
        except RPCError as error:
            raise refusal(error) from None


async def _facts(client: Runs, listed: WorkflowExecution, at_once: asyncio.Semaphore) -> _Facts:
    """Return what a run has done, as far as anybody can tell."""
    async with at_once:
        run = listed
        if listed.status is WorkflowExecutionStatus.RUNNING:  # the list can be late, the run itself is not
            run = await answered(
                client.temporal.get_workflow_handle(listed.id).describe(rpc_timeout=ASK_TIMEOUT), listed.id
            )
        if run.status is WorkflowExecutionStatus.RUNNING:
            return await _so_far(client, run)
        handle = client.temporal.get_workflow_handle(run.id, run_id=run.run_id, result_type=ExecutionResult)
        try:
            result: ExecutionResult = await answered(handle.result(follow_runs=False, rpc_timeout=ASK_TIMEOUT), run.id)
        except WorkflowFailureError as error:
            return _failed(run, error)
        stopped = "" if result.status == "completed" else result.why
        used = result.used
        return _Facts(run, result.step_count, used.usage, used.cost, stopped, used.unpriced)


async def _so_far(client: Runs, run: WorkflowExecution) -> _Facts:
    try:
        told = await client.debug(run.id)
        usage, waiting = Usage.model_validate(told["usage"]), told["waiting"]
        why = f"waits for a decision about {', '.join(map(str, waiting))}" if waiting else ""
        return _Facts(run, told["steps"], usage, told["cost"], why, tuple(told["unpriced"]))
    except (HoldfastError, KeyError, ValidationError):
        return _Facts(run)


def _failed(run: WorkflowExecution, error: WorkflowFailureError) -> _Facts:
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.details:
        try:
            told = ExecutionFailure.model_validate(cause.details[0])
        except ValidationError:
            return _Facts(run, why=cause.message)
        used = told.used
        return _Facts(run, summary(run).steps or 0, used.usage, used.cost, told.message, used.unpriced)
    return _Facts(run, why=f"{type(cause).__name__}: {cause}")
