"""All agents at work on a server: the server lists them, their workers report progress. Changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.execution_summaries import ExecutionSummary, search_values, session_summary, summary
from holdfast.client.progress_query import head
from holdfast.client.sessions.validation import check_query
from holdfast.client.validation import check_limit
from holdfast.client.waiting_calls import ASKED_AT_ONCE, WaitingCall, calls_of
from holdfast.connection.executions import UNDER_WAY, executions
from holdfast.connection.rpc_errors import query_refusal
from holdfast.core.base.bounds import TOP_ROWS
from holdfast.core.base.errors import ExecutionNotFound, HoldfastError, ServerUnavailable
from holdfast.core.wire import search_attributes
from holdfast.core.wire.contracts import AGENT_EXECUTION
from holdfast.core.wire.session_contracts import AGENT_SESSION
from holdfast.core.wire.workflow_ids import kind_of, type_filter
from holdfast.view.budget_use import Share
from holdfast.view.run_view import RunView, StepView, completed_step, current_step, run_view

if TYPE_CHECKING:
    from holdfast.client import Holdfast

T = TypeVar("T")

OURS: Final = f"({type_filter(AGENT_EXECUTION)} OR {type_filter(AGENT_SESSION)}) AND {UNDER_WAY}"
"""The server's query for runs and sessions that are under way."""

LIST_SECONDS_MAX: Final = 5.0
"""How long one listing may take: it is made again and again, and silence is to be told of."""

OTHERWISE_ANSWERS_TIMEOUT: Final = timedelta(seconds=1)
"""How long a server that has not listed in time may take to answer something else, which costs it nothing."""

SILENT: Final = frozenset({RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED})
"""How a listing ends when nobody answers in time."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A run or session as the server lists it; none where it does not know."""

    id: str
    run_id: str
    kind: Literal["run", "session"]
    status: str
    summary: ExecutionSummary
    waiting: bool
    tenant: str | None
    parent: str | None
    """The run or session that began it."""
    task_queue: str

    @property
    def steps(self) -> int | None:
        """How many steps of a run are complete: a session's number is that of its runs."""
        return None if self.kind == "session" else self.summary.steps


@dataclass(frozen=True, slots=True)
class Row:
    """A run or session under way: what the server says of it, and its worker as far as it was asked and has told."""

    listed: Listed
    run: RunView | None = None
    """What its worker has told, with the step under way or the last one."""
    waiting: tuple[WaitingCall, ...] = ()
    unread: str = ""
    """Why its worker did not tell."""

    @property
    def started_at(self) -> datetime:
        """When it began, as its worker has it or the server."""
        return (self.run and self.run.started_at) or self.listed.summary.started_at

    @property
    def step(self) -> StepView | None:
        """The step under way, or the last one."""
        return self.run.steps[-1] if self.run and self.run.steps else None

    def shares(self, now: datetime) -> tuple[Share, ...]:
        """Return how much of each limit is used at `now`, as far as its worker has told."""
        return self.run.shares(now) if self.run else ()

    def elapsed(self, now: datetime) -> float:
        """Return for how many seconds it has been under way."""
        return max(0.0, (now - self.started_at).total_seconds())


@dataclass(frozen=True, slots=True)
class Overview:
    """What is under way: the latest to begin, and how many there are `in_all`."""

    rows: tuple[Listed, ...]
    in_all: int


async def overview(client: Holdfast, query: str | None = None, limit: int = TOP_ROWS) -> Overview:
    """Return what is under way, the latest to begin first; asks no worker.

    `query` is a further condition in Temporal's list filter. Raises InvalidInput for one that the server does not
    understand, and for a limit out of range; ServerUnavailable.
    """
    check_limit(limit)
    condition = f"{OURS} AND ({check_query(query)})" if query else OURS
    temporal = client.temporal
    silent = f"the Temporal server at {client.address} does not answer"
    try:
        async with asyncio.timeout(LIST_SECONDS_MAX):  # the SDK tries for longer, which is not to be waited for
            listing = [_listed(each) async for each in executions(temporal, condition, limit=limit)]
            in_all = len(listing)
            if in_all == limit:
                in_all = (await temporal.count_workflows(condition)).count
    except TimeoutError:
        raise ServerUnavailable(await _delay_cause(client) or silent) from None
    except RPCError as error:
        if error.status in SILENT:
            raise ServerUnavailable(silent) from None
        raise query_refusal(error, query) from None
    return Overview(tuple(listing), max(in_all, len(listing)))


async def _delay_cause(client: Holdfast) -> str:
    """Return why a server that answers has not listed in time; nothing where it does not answer at all."""
    try:
        await client.temporal.workflow_service.get_system_info(
            GetSystemInfoRequest(), timeout=OTHERWISE_ANSWERS_TIMEOUT
        )
    except RPCError:
        return ""
    limit = "it allows only so many lists a second (frontend.namespaceRPS.visibility)"
    return f"the Temporal server at {client.address} answers, and has not listed within {LIST_SECONDS_MAX:g} s: {limit}"


async def progress(client: Holdfast, listed: Listed, *, whole: bool = False, seconds_max: float | None = None) -> Row:
    """Ask the worker of a run how far it is; with `whole`, also for its last step where none is under way.

    Raises ExecutionNotFound, ServerUnavailable.
    """
    page = await head(client, listed.id, task_queue=listed.task_queue, seconds_max=seconds_max)
    if whole and page.steps_total and (page.head.execution is None or page.head.execution.current_step is None):
        page = await head(client, listed.id, steps_from=page.steps_total - 1, task_queue=listed.task_queue)
    state = page.head
    if state.execution is None:
        raise ExecutionNotFound(f"run {listed.id} has not begun yet")
    agent, step = state.metadata.get("agent"), current_step(state)
    steps = (*map(completed_step, page.steps), *([] if step is None else [step]))[-1:]
    total = page.steps_total + state.execution.subagent_steps
    run = run_view(state, agent if isinstance(agent, str) else "")
    return Row(listed, replace(run, step_count=page.steps_total, steps_used=total, steps=steps), calls_of(state))


async def rows(client: Holdfast, listed: Iterable[Listed]) -> list[Row]:
    """Ask the workers of all these runs, a few at a time; sessions are not asked, nor is it awaited what is silent."""
    at_once = asyncio.Semaphore(ASKED_AT_ONCE)

    async def row(each: Listed) -> Row:
        async with at_once:
            return await row_of(client, each)

    return list(await asyncio.gather(*map(row, listed)))


async def row_of(client: Holdfast, listed: Listed) -> Row:
    """Ask the worker of one of them; raises nothing for one that does not tell."""
    if listed.kind == "session":
        return Row(listed)
    try:
        return await progress(client, listed)
    except HoldfastError as error:
        return Row(listed, unread=str(error))


def _listed(workflow: WorkflowExecution) -> Listed:
    is_session = kind_of(workflow.workflow_type) == "session"
    session, run, values = session_summary(workflow), summary(workflow), search_values(workflow)
    return Listed(
        id=session.agent_id if is_session else workflow.id,
        run_id=workflow.run_id,
        kind="session" if is_session else "run",
        status=session.status if is_session else run.status,
        summary=run,
        waiting=values.get(search_attributes.WAITING) is not None,
        tenant=values.get(search_attributes.TENANT),
        parent=values.get(search_attributes.PARENT),
        task_queue=workflow.task_queue,
    )
