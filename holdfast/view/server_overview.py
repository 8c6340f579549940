"""All agents at work on a server: the server lists them, their workers tell how far each is. Changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from temporalio.client import WorkflowExecution
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from holdfast.client.execution_summaries import session_summary, summary
from holdfast.client.progress_query import head
from holdfast.client.session_validation import check_query
from holdfast.client.validation import check_limit
from holdfast.client.waiting_calls import ASKED_AT_ONCE, WaitingCall, calls_of
from holdfast.connection.rpc_errors import query_refusal
from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.base.bounds import LIVE_TEXT_CHARS_MAX, TOP_ROWS
from holdfast.core.base.errors import ExecutionNotFound, HoldfastError, ServerUnavailable
from holdfast.core.conversation.steps import AgentStep, OpenCall
from holdfast.core.wire import search_attributes
from holdfast.core.wire.contracts import AGENT_EXECUTION
from holdfast.core.wire.session_contracts import AGENT_SESSION
from holdfast.core.wire.workflow_ids import kind_of, type_filter
from holdfast.view.budget_use import Share, Used, shares

if TYPE_CHECKING:
    from holdfast.client import Holdfast

T = TypeVar("T")

UNDER_WAY: Final = f"({type_filter(AGENT_EXECUTION)} OR {type_filter(AGENT_SESSION)}) AND ExecutionStatus = 'Running'"
"""The server's query for runs and sessions that it has."""

LIST_SECONDS_MAX: Final = 5.0
"""How long one listing may take: it is made again and again, and silence is to be told of."""

SILENT: Final = frozenset({RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED})
"""How a listing ends when nobody answers in time."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A run or session as the server lists it; none where it does not know.

    `cost` is in US dollars, without the `unpriced` models; `estimated` says whether some tokens are an upper bound.
    """

    id: str
    run_id: str
    kind: Literal["run", "session"]
    agent: str | None
    status: str
    steps: int | None
    tokens: int | None
    cost: float | None
    waiting: bool
    tenant: str | None
    parent: str | None
    """The run or session that began it."""
    task_queue: str
    started_at: datetime
    estimated: bool = False
    unpriced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is at the moment `at`, as its worker tells it; `cost` in US dollars, `seconds` those that count."""

    agent: str
    steps: int
    steps_used: int
    """With those of its subagents that have ended: what the limit counts."""
    tokens: int
    cost: float
    estimated: bool
    """Whether some of the tokens are an upper bound."""
    unpriced: tuple[str, ...]
    """The models whose tokens are not in the cost."""
    seconds: float
    at: datetime
    counts: bool
    """Whether time counts at that moment: not while it waits for a person, where the agent's limits say so."""
    started_at: datetime
    budget: ExecutionBudget
    waiting: tuple[WaitingCall, ...]
    step: AgentStep | None
    """The step under way, or the last one."""
    step_started_at: datetime | None
    open_calls: tuple[OpenCall, ...]
    text: str
    """The end of what the model said last."""
    stops: str
    """What wants it to stop; empty where nothing does."""

    def shares(self, now: datetime) -> tuple[Share, ...]:
        """Return how much of each limit is used at `now`."""
        since = (now - self.at).total_seconds() if self.counts else 0.0
        used = Used(self.steps_used, self.tokens, self.cost, self.seconds + max(0.0, since), self.unpriced)
        return shares(self.budget, used, started_at=self.started_at, now=now)


@dataclass(frozen=True, slots=True)
class Row:
    """A run or session under way: what the server says of it, and its worker as far as it was asked and has told."""

    listed: Listed
    progress: Progress | None = None
    unread: str = ""
    """Why its worker did not tell."""

    def elapsed(self, now: datetime) -> float:
        """Return for how many seconds it has been under way."""
        started_at = self.progress.started_at if self.progress else self.listed.started_at
        return max(0.0, (now - started_at).total_seconds())


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
    wanted = f"{UNDER_WAY} AND ({check_query(query)})" if query else UNDER_WAY
    temporal = client.temporal
    silent = f"the Temporal server at {client.address} does not answer"
    try:
        async with asyncio.timeout(LIST_SECONDS_MAX):  # the SDK tries for longer, which is not to be waited for
            found = [_listed(each) async for each in temporal.list_workflows(wanted, limit=limit)]
            in_all = len(found)
            if in_all == limit:
                in_all = (await temporal.count_workflows(wanted)).count
    except TimeoutError:
        raise ServerUnavailable(silent) from None
    except RPCError as error:
        if error.status in SILENT:
            raise ServerUnavailable(silent) from None
        raise query_refusal(error, query) from None
    return Overview(tuple(found), max(in_all, len(found)))


async def progress(
    client: Holdfast, listed: Listed, now: datetime, *, whole: bool = False, seconds_max: float | None = None
) -> Progress:
    """Ask the worker of a run how far it is; with `whole`, also for its last step where none is under way.

    Raises ExecutionNotFound, ServerUnavailable.
    """
    page = await head(client, listed.id, task_queue=listed.task_queue, seconds_max=seconds_max)
    if whole and page.steps_total and (page.head.execution is None or page.head.execution.current_step is None):
        page = await head(client, listed.id, steps_from=page.steps_total - 1, task_queue=listed.task_queue)
    state, execution = page.head, page.head.execution
    if execution is None:
        raise ExecutionNotFound(f"run {listed.id} has not begun yet")
    agent, stop = state.metadata.get("agent"), state.stop_signal
    step = execution.current_step or (page.steps[-1].step if page.steps else None)
    said = None if step is None else step.inference_response or step.partial_response
    return Progress(
        agent=agent if isinstance(agent, str) else "",
        steps=page.steps_total,
        steps_used=page.steps_total + execution.subagent_steps,
        tokens=execution.usage.total_tokens,
        cost=execution.cost,
        estimated=execution.usage.estimated_tokens > 0,
        unpriced=execution.unpriced,
        seconds=execution.seconds_used(now),
        at=now,
        counts=execution.paused_at is None,
        started_at=execution.started_at,
        budget=execution.budget,
        waiting=calls_of(state),
        step=step,
        step_started_at=execution.current_step_started_at,
        open_calls=execution.open_calls,
        text=said.text[-LIVE_TEXT_CHARS_MAX:] if said else "",
        stops=f"{stop.reason}: {stop.message}" if stop else "",
    )


async def rows(client: Holdfast, listed: Iterable[Listed], now: datetime) -> list[Row]:
    """Ask the workers of all these runs, a few at a time; sessions are not asked, nor is it awaited what is silent."""
    at_once = asyncio.Semaphore(ASKED_AT_ONCE)

    async def row(each: Listed) -> Row:
        async with at_once:
            return await asked(client, each, now)

    return list(await asyncio.gather(*map(row, listed)))


async def asked(client: Holdfast, listed: Listed, now: datetime) -> Row:
    """Ask the worker of one of them; raises nothing for one that does not tell."""
    if listed.kind == "session":
        return Row(listed)
    try:
        return Row(listed, await progress(client, listed, now))
    except HoldfastError as error:
        return Row(listed, unread=str(error))


def _listed(found: WorkflowExecution) -> Listed:
    is_session = kind_of(found.workflow_type) == "session"
    run, session = summary(found), session_summary(found)
    return Listed(
        id=session.agent_id if is_session else found.id,
        run_id=found.run_id,
        kind="session" if is_session else "run",
        agent=run.agent,
        status=session.status if is_session else run.status,
        steps=None if is_session else run.steps,  # of a session it is how many runs it had
        tokens=run.tokens,
        cost=run.cost,
        estimated=run.estimated_tokens > 0,
        unpriced=run.unpriced,
        waiting=_known(found, search_attributes.WAITING) == search_attributes.FOR_APPROVAL,
        tenant=_known(found, search_attributes.TENANT),
        parent=_known(found, search_attributes.PARENT),
        task_queue=found.task_queue,
        started_at=found.start_time,
    )


def _known(found: WorkflowExecution, name: str) -> Any:  # noqa: ANN401  # the server's own word
    return found.typed_search_attributes.get(SearchAttributeKey.for_keyword(name))
