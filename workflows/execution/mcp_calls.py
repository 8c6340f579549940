"""Lists the tools of an agent's MCP servers, by an activity that a stop ends, and makes the inputs of their calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from enum import Enum
from functools import partial

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.exceptions import TimeoutError as ActivityTimeout
from temporalio.workflow import ActivityCancellationType

from holdfast.core.agent.budget import ExecutionBudget
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.loop.commands import CallTool
from holdfast.core.loop.events import Event, StopRequested, TimerFired
from holdfast.core.tools.tool_search import SEARCH_TOOL
from holdfast.core.tools.tool_traits import ToolTraits
from holdfast.core.wire.contracts import RESOLVE_MCP_ACTIVITY, ExecutionInput
from holdfast.core.wire.mcp_contracts import McpCall, McpInputs, McpRequest, McpResolved, McpSearch
from holdfast.core.wire.transcript_digest import TranscriptPrefix
from workflows import summaries
from workflows.execution.activity_calls import HEARTBEAT_TIMEOUT
from workflows.timeouts import MCP


class Unlisted(Enum):
    """What came before the servers' lists: a stop, or the time limit."""

    STOPPED = "stopped"
    LATE = "late"


Listing = McpResolved | Unlisted | None
"""The catalog, or why there is none. None for an agent without MCP servers."""


def is_stopping(inbox: Iterable[Event]) -> bool:
    """Return whether a stop waits in `inbox`."""
    return any(isinstance(each, StopRequested) for each in inbox)


def is_ending(inbox: Iterable[Event]) -> bool:
    """Return whether a stop, or the time limit of a run under way, waits in `inbox`."""
    return any(isinstance(each, StopRequested | TimerFired) for each in inbox)


def time_for(budget: ExecutionBudget, begins_at: datetime) -> timedelta | None:
    """Return the time that `budget` leaves for listing, none without a limit.

    A deadline that has passed leaves a millisecond: that the time is over is for the core to say.
    """
    seconds = [] if budget.max_seconds is None else [budget.max_seconds]
    if budget.deadline is not None:
        seconds.append((budget.deadline - begins_at).total_seconds())
    return max(timedelta(seconds=min(seconds)), timedelta(milliseconds=1)) if seconds else None


async def resolve_mcp(
    start: ExecutionInput, time_left: timedelta | None, unwanted: Callable[[], bool], previous: str | None
) -> Listing:
    """Return the catalog of the tools of the agent's MCP servers, as a worker has just listed them.

    It says how it differs from the catalog that the agent had before, whose digest is `previous`. A listing that takes
    longer than `time_left`, or becomes `unwanted`, is given up. Raises ActivityError.
    """
    if not start.definition.mcp:
        return None
    listing = asyncio.create_task(_listed(start, previous))
    # one that is cancelled ends with an error that nobody reads
    listing.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    try:
        await workflow.wait_condition(
            lambda: listing.done() or unwanted(), timeout=time_left, timeout_summary=summaries.LISTING_LIMIT
        )
        return listing.result() if listing.done() else Unlisted.STOPPED
    except TimeoutError:
        return Unlisted.LATE
    finally:
        listing.cancel()


async def resolve_at_start(
    start: ExecutionInput, begins_at: datetime, inbox: Iterable[Event], previous: str | None
) -> Listing:
    """Return the catalog for a run that begins; as `resolve_mcp`."""
    time_left = time_for(start.budget, begins_at)
    return await resolve_mcp(start, time_left, partial(is_stopping, inbox), previous)


def mcp_input(
    command: CallTool, traits: ToolTraits, opening: TranscriptPrefix, tenant: str, inputs: McpInputs | None
) -> McpCall | McpSearch | None:
    """Return the input of an MCP tool's call, or of a search in the run's catalog; none for any other tool's.

    With `inputs` a call goes on whose server has asked for something.
    """
    catalog, call, definition = opening.mcp, command.call, opening.definition
    if catalog is None:
        return None
    if call.name == SEARCH_TOOL:
        tools, denied = definition.tools, definition.tools_deny
        return McpSearch(catalog=catalog, arguments=call.arguments, tools=tools, tools_deny=denied)
    if traits.mcp is None:
        return None
    return McpCall(
        catalog=catalog,
        name=call.name,
        arguments=call.arguments,
        step=command.step_number,
        call_id=call.id,
        tenant=tenant,
        inputs=inputs,
    )


async def _listed(start: ExecutionInput, previous: str | None) -> McpResolved:
    try:
        return await _resolved(start, previous)
    except ActivityError as error:
        if isinstance(error.cause, ActivityTimeout):
            raise _not_in_time(start.definition, error.cause) from None
        raise


def _not_in_time(definition: AgentDefinition, timeout: ActivityTimeout) -> ApplicationError:
    """Return the error of a listing that took too long, with the cause of its last attempt where that is known."""
    last, tried = timeout.cause, f"given up after {MCP.total.total_seconds():g} s"
    if isinstance(last, ApplicationError):
        return ApplicationError(f"{last.message} ({tried})", type=last.type, non_retryable=True)
    servers = ", ".join(map(repr, definition.mcp_names))
    text = f"the MCP servers {servers} have not listed their tools in time ({tried}); is a worker there?"
    return ApplicationError(text, type="McpUnavailable", non_retryable=True)


async def _resolved(start: ExecutionInput, previous: str | None) -> McpResolved:
    definition = start.definition
    resolved: McpResolved = await workflow.execute_activity(
        RESOLVE_MCP_ACTIVITY,
        McpRequest(agent=definition.name, servers=definition.mcp, previous=previous, tenant=start.tenant),
        result_type=McpResolved,
        start_to_close_timeout=MCP.attempt,
        schedule_to_close_timeout=MCP.total,
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=MCP.retry,
        cancellation_type=ActivityCancellationType.TRY_CANCEL,
        summary=summaries.of_mcp(definition.mcp_names),
    )
    return resolved
