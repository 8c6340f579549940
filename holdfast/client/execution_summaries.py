"""Summaries of runs and sessions for listings: what the server knows without asking a worker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, cast

from temporalio.client import Client, WorkflowExecution
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError

from holdfast.client.sessions.validation import check_query
from holdfast.client.validation import check_limit
from holdfast.client.waiting_calls import WAITING_RUNS
from holdfast.connection.executions import executions, is_paused
from holdfast.connection.rpc_errors import query_refusal
from holdfast.connection.workflow_reader import ASK_TIMEOUT
from holdfast.core.agent.execution_state import ExecutionStatus
from holdfast.core.base.errors import HoldfastError
from holdfast.core.wire import search_attributes
from holdfast.core.wire.contracts import AGENT_EXECUTION
from holdfast.core.wire.run_metadata import STARTED
from holdfast.core.wire.workflow_ids import agent_in, own_id, type_filter

ENDED_WELL: Final = frozenset({ExecutionStatus.COMPLETED, ExecutionStatus.STOPPED})

PAUSED: Final = "paused"
"""What is said of a run or a session that an operator has paused: the server gives it no task until it is unpaused."""


@dataclass(frozen=True, slots=True)
class ExecutionSummary:
    """One run; None where the server does not know."""

    execution_id: str
    agent: str | None
    status: str
    stop_reason: str | None
    steps: int | None
    tokens: int | None
    cost: float | None
    """In US dollars."""
    started_at: datetime
    closed_at: datetime | None
    estimated_tokens: int = 0
    """How many of the tokens are an upper bound."""
    cached_tokens: int = 0
    """How many of them the provider read from its prompt cache."""
    unpriced: tuple[str, ...] = ()
    """The models whose tokens have no known price; they are not in `cost`."""


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One agent's session; None where the server does not know.

    `status` is `idle`, `running`, `suspended` or `closed` while the server has the session. A session that has left it
    says `away` (a message brings it back) or `closed`; one that was ended from outside says how.
    """

    agent_id: str
    agent: str | None
    status: str
    executions: int | None
    started_at: datetime
    """When it last came to the server, which it did anew each time it had left it."""
    updated_at: datetime | None
    """When it last left it."""


def session_summary(execution: WorkflowExecution) -> SessionSummary:
    """Return the line of one session."""
    values = search_values(execution)
    status, own_status = (
        execution.status.name.lower() if execution.status else "unknown",
        values.get(search_attributes.STATUS),
    )
    if is_paused(execution):
        status = PAUSED
    elif status == "running":
        status = own_status or "idle"
    elif status == "completed":
        status = "closed" if own_status == "closed" else "away"
    return SessionSummary(
        agent_id=own_id(execution.id),
        agent=values.get(search_attributes.AGENT),
        status=status,
        executions=values.get(search_attributes.STEPS),
        started_at=execution.start_time,
        updated_at=execution.close_time,
    )


def summary(execution: WorkflowExecution) -> ExecutionSummary:
    """Return the line of one run."""
    values = search_values(execution)
    status = execution.status.name.lower() if execution.status else "unknown"
    # Ours is finer where a run is under way or ended well; of any other end the server knows, and ours may be stale.
    if is_paused(execution):
        status = PAUSED
    elif status == "running":
        status = values.get(search_attributes.STATUS) or "in_progress"
    elif status == "completed" and values.get(search_attributes.STATUS) in ENDED_WELL:
        status = values[search_attributes.STATUS]
    return ExecutionSummary(
        execution_id=execution.id,
        agent=values.get(search_attributes.AGENT),
        status=status,
        stop_reason=values.get(search_attributes.STOP_REASON),
        steps=values.get(search_attributes.STEPS),
        tokens=values.get(search_attributes.TOKENS),
        cost=values.get(search_attributes.COST),
        estimated_tokens=values.get(search_attributes.ESTIMATED) or 0,
        cached_tokens=int(values.get(search_attributes.CACHED) or 0),
        unpriced=tuple(filter(None, (values.get(search_attributes.UNPRICED) or "").split(", "))),
        started_at=execution.start_time,
        closed_at=execution.close_time,
    )


def agent_of(execution: WorkflowExecution) -> str:
    """Return the agent's name; empty where the server does not know it."""
    return str(search_values(execution).get(search_attributes.AGENT, "")) or agent_in(execution.workflow_type)


def at_start(agent: str | None, *, tenant: str = "", status: str = "") -> TypedSearchAttributes:
    """Return what a run can be listed by from its beginning; with its `status`, a session."""
    values = search_attributes.begun(agent, tenant=tenant, status=status)
    return TypedSearchAttributes(
        [SearchAttributePair(SearchAttributeKey.for_keyword(name), value) for name, value in values.items()]
    )


def search_values(execution: WorkflowExecution) -> dict[str, Any]:
    """Return the search attributes of a run or session, by their names."""
    return {
        pair.key.name: pair.value  # pyright: ignore[reportUnknownMemberType]  # the SDK's generic is left open
        for pair in cast("Iterable[SearchAttributePair[Any]]", execution.typed_search_attributes)
    }


async def begun_at(execution: WorkflowExecution) -> datetime:
    """Return when the execution began: its first Temporal run, where this one continues it."""
    if STARTED not in execution.raw_info.memo.fields:
        return execution.start_time
    try:
        return datetime.fromisoformat(await execution.memo_value(STARTED, type_hint=str))
    except (RuntimeError, ValueError, HoldfastError):  # encrypted with a key that is not ours
        return execution.start_time


async def listed_runs(
    temporal: Client, limit: int, query: str | None = None, *, waiting: bool = False
) -> list[ExecutionSummary]:
    """Return the latest runs, as `Holdfast.runs` promises. Raises InvalidInput, ServerUnavailable."""
    check_limit(limit)
    # a run that went on in a new one is no line of its own
    runs = f"{type_filter(AGENT_EXECUTION)} AND ExecutionStatus != 'ContinuedAsNew'"
    condition = WAITING_RUNS if waiting else runs
    condition += f" AND ({check_query(query)})" if query else ""
    try:
        workflows = executions(temporal, condition, limit=limit, rpc_timeout=ASK_TIMEOUT)
        return [replace(summary(each), started_at=await begun_at(each)) async for each in workflows]
    except RPCError as error:
        raise query_refusal(error, query) from None
