"""The tool calls that wait for a person, in all runs: the server lists the runs, their workers report the calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from time import monotonic
from typing import Final

from pydantic import JsonValue
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowExecution

from holdfast.client.validation import check_limit
from holdfast.client.workflow_queries import queried
from holdfast.connection.executions import described
from holdfast.connection.rpc_errors import answered
from holdfast.connection.workflow_reader import ASK_TIMEOUT, SILENCE_SECONDS_MAX, listed
from holdfast.core.agent.state import AgentState
from holdfast.core.base.errors import ExecutionNotFound, HoldfastError, ServerUnavailable
from holdfast.core.conversation.steps import OpenCall
from holdfast.core.wire.contracts import AGENT_EXECUTION, HEAD_ALONE, STATE_QUERY, StatePage
from holdfast.core.wire.search_attributes import FOR_APPROVAL, FOR_INPUT, PARENT, WAITING
from holdfast.core.wire.workflow_ids import SESSION_PREFIX, session_workflow_id, type_filter

WAITING_RUNS: Final = (
    f"{type_filter(AGENT_EXECUTION)} AND {WAITING} IN ('{FOR_APPROVAL}', '{FOR_INPUT}') AND ExecutionStatus = 'Running'"
)
"""The server's query for runs with calls that wait."""

LOOK_SECONDS: Final = 1.0
"""How long between two looks for calls that wait; the server itself lists a run up to a second late."""

ASKED_AT_ONCE: Final = 8
"""How many runs are asked at a time: a worker takes each of them up for it."""


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A tool call that waits for a person. `digest` binds a decision to this very call (`Verdict.digest`).

    `parent_agent_id` is there where a subagent asks. `arguments` are as the call would run with them.
    `tool_digest` is that of an MCP tool's description (`Verdict.tool_digest`).

    With a `message`, the call's server asks for something (`answer_question`) and no decision is wanted: it asks with a
    `form`, a JSON Schema, or for a `url` to be opened. `digest` is then the request's.
    """

    execution_id: str
    agent: str
    agent_id: str
    parent_agent_id: str | None
    call_id: str
    tool: str
    arguments: Mapping[str, JsonValue]
    digest: str
    asked_at: datetime | None
    expires_at: datetime | None
    message: str | None = None
    form: Mapping[str, JsonValue] | None = None
    url: str | None = None
    tool_digest: str | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from every other call, also from the same one with other arguments."""
        return self.execution_id, self.call_id, self.digest


@dataclass(frozen=True, slots=True)
class WaitingCalls:
    """The calls that wait, those that wait longest first. `unread` are the ids of runs whose worker did not tell.

    `more` is whether there may be others: the limit was reached, of runs or of calls.
    """

    calls: tuple[WaitingCall, ...] = ()
    unread: tuple[str, ...] = ()
    more: bool = False

    def __iter__(self) -> Iterator[WaitingCall]:
        return iter(self.calls)

    def __len__(self) -> int:
        return len(self.calls)

    def __bool__(self) -> bool:
        return bool(self.calls)


async def waiting_calls(temporal: TemporalClient, limit: int = 20, *, among: str = "") -> WaitingCalls:
    """Return at most `limit` calls that wait for a person, over all runs of the namespace.

    `among` is a condition of the server's list filter on those runs. The server learns a moment later than the run
    itself that a call waits. Runs on a server that does not know our search attributes are not found. Raises
    InvalidInput for a limit out of range, ServerUnavailable.
    """
    check_limit(limit)
    runs = await listed(temporal, f"{WAITING_RUNS} AND {among}" if among else WAITING_RUNS, limit)
    at_once = asyncio.Semaphore(ASKED_AT_ONCE)
    results = await asyncio.gather(*(_calls_of_run(temporal, each, at_once) for each in runs))
    calls = sorted((call for each in results for call in each.calls), key=_since)
    more = len(runs) == limit or len(calls) > limit
    return WaitingCalls(tuple(calls[:limit]), tuple(id_ for each in results for id_ in each.unread), more)


async def each_waiting_call(temporal: TemporalClient, limit: int) -> AsyncGenerator[WaitingCall, None]:
    """Yield each call that waits for a person, once: those that wait already first, then others as they come.

    At most `limit` that wait at the same time are seen. A server that is away is waited for SILENCE_SECONDS_MAX. Raises
    InvalidInput, ServerUnavailable.
    """
    check_limit(limit)
    known_keys: set[tuple[str, str, str]] = set()
    silent_since: float | None = None
    while True:
        try:
            calls = await waiting_calls(temporal, limit)
        except ServerUnavailable:
            silent_since = monotonic() if silent_since is None else silent_since
            if monotonic() - silent_since > SILENCE_SECONDS_MAX:
                raise
        else:
            silent_since = None
            new = [each for each in calls if each.message is None and each.key not in known_keys]
            # one that was not read this time may still wait: it is no new one when it is read again
            known_keys = {each.key for each in calls} | {key for key in known_keys if key[0] in calls.unread}
            for each in new:
                yield each
        await asyncio.sleep(LOOK_SECONDS)  # nobody tells of a call that begins to wait


async def waiting_of_session(temporal: TemporalClient, agent_id: str) -> WaitingCalls:
    """Return calls that wait of an agent's run under way and of its subagents, theirs included. Raises the same."""
    return await waiting_calls(temporal, among=f"RootWorkflowId = '{session_workflow_id(agent_id)}'")


async def waiting_below(temporal: TemporalClient, execution_id: str) -> WaitingCalls:
    """Return calls of a run's subagents that wait; theirs included, unless the run is a subagent's itself.

    Raises ExecutionNotFound, ServerUnavailable.
    """
    run = await answered(described(temporal, execution_id, rpc_timeout=ASK_TIMEOUT), execution_id)
    root = run.root_id or execution_id
    own_tree = root == execution_id or (run.parent_id == root and root.startswith(SESSION_PREFIX))
    tree = f"RootWorkflowId = '{root}'" if own_tree else f"{PARENT} = '{execution_id}'"
    return await waiting_calls(temporal, among=f"{tree} AND WorkflowId != '{execution_id}'")


def calls_of(state: AgentState) -> tuple[WaitingCall, ...]:
    """Return the calls of one run that wait."""
    return (
        *(_waiting_call(state, each, each.call.digest, each.started_at) for each in state.waiting_calls),
        *(_with_question(state, each) for each in state.input_calls),
    )


def _waiting_call(state: AgentState, each: OpenCall, digest: str, asked_at: datetime | None) -> WaitingCall:
    agent = state.metadata.get("agent")
    return WaitingCall(
        execution_id=state.running.execution_id,
        agent=agent if isinstance(agent, str) else "",
        agent_id=state.agent_id,
        parent_agent_id=state.parent_agent_id,
        call_id=each.call.id,
        tool=each.call.name,
        arguments=each.call.arguments,
        digest=digest,
        asked_at=asked_at,
        expires_at=each.expires_at,
        tool_digest=each.tool_digest,
    )


def _with_question(state: AgentState, each: OpenCall) -> WaitingCall:
    request, pending = each.input_request, each.pending_input
    call = _waiting_call(state, each, each.digest or "", pending.asked_at if pending else None)
    return call if request is None else replace(call, message=request.message, form=request.form, url=request.url)


async def _calls_of_run(temporal: TemporalClient, run: WorkflowExecution, at_once: asyncio.Semaphore) -> WaitingCalls:
    """Return what a run's worker says of its calls; a run that is gone meanwhile has none."""
    handle, seconds = temporal.get_workflow_handle(run.id, run_id=run.run_id), ASK_TIMEOUT.total_seconds()
    try:
        async with at_once:
            page = await queried(None, handle, STATE_QUERY, HEAD_ALONE, StatePage, run.task_queue, seconds_max=seconds)
    except ExecutionNotFound:
        return WaitingCalls()
    except (HoldfastError, TimeoutError):
        return WaitingCalls(unread=(run.id,))
    return WaitingCalls(calls_of(page.head))


def _since(call: WaitingCall) -> tuple[bool, float, str]:
    asked_at = call.asked_at
    return (asked_at is None, asked_at.timestamp() if asked_at else 0.0, call.call_id)
