"""MCP servers as activities: `resolve_mcp` lists an agent's servers, `call_mcp_tool` makes one call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.attempt_admission import AttemptFailure, attempt_number, attempted, failure_of, refuse_spent
from activities.heartbeats import pulse
from activities.tools import ToolSlots, envelope, is_plain
from holdfast.core.agent.execution_state import named_id
from holdfast.core.base.errors import HoldfastError, InvalidArguments, InvalidInput, MissingPart, StorageFailed
from holdfast.core.conversation.error_records import error_record
from holdfast.core.tools.mcp_catalog import McpTool
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tool_errors import ended_without_answer
from holdfast.core.tools.tool_results import ToolReply
from holdfast.core.tools.tool_traits import ToolTraits
from holdfast.core.tools.tools import AnyTool
from holdfast.core.wire.contracts import (
    CALL_MCP_TOOL_ACTIVITY,
    RESOLVE_MCP_ACTIVITY,
)
from holdfast.core.wire.mcp_contracts import MCP_LEFT_OUT_MAX, McpCall, McpRequest, McpResolved
from holdfast.mcp.errors import McpOutcomeUnknown
from holdfast.mcp.pool import McpPool
from holdfast.mcp.replies import files_of, reply_to
from holdfast.mcp.tools import McpProxyTool, call_mcp_tool, proxy_tools
from holdfast.runtime.argument_check import argument_problem
from holdfast.runtime.call_reports import CallReports
from holdfast.runtime.tool_runner import Results
from holdfast.storage.records import Records

if TYPE_CHECKING:  # an extra
    from holdfast.telemetry.spans import Spans

CATALOGS_MAX: Final = 64
"""How many catalogs are kept as tools: every model call needs its run's."""

FINAL: Final = (InvalidInput, MissingPart)
"""Errors of listing that no retry mends."""


class _Pinned(NamedTuple):
    """A catalog's tools by name, as the server described them and as tools of ours."""

    described: Mapping[str, McpTool]
    proxies: Mapping[str, McpProxyTool]


class McpTools:
    """The activities of the MCP servers that this worker knows, and the catalogs that its runs have pinned."""

    def __init__(
        self,
        pool: McpPool,
        records: Records,
        slots: ToolSlots | None = None,
        results: Results | None = None,
        spans: Spans | None = None,
    ) -> None:
        self._pool = pool
        self._records = records
        self._slots = slots
        self._results = results
        self._spans = spans
        self._catalogs: dict[str, _Pinned] = {}

    @activity.defn(name=RESOLVE_MCP_ACTIVITY)
    async def resolve(self, request: McpRequest) -> McpResolved:
        """List the tools of the servers and store them as a catalog. Fails without retry with InvalidInput."""
        try:
            catalog = await self._pool.catalog(request.servers, request.agent, activity.info().workflow_id or "")
            digest = await self._records.write_catalog(catalog)
        except HoldfastError as error:
            final = isinstance(error, FINAL)
            raise ApplicationError(error.message, type=type(error).__name__, non_retryable=final) from None
        left_out = catalog.left_out
        if len(left_out) > MCP_LEFT_OUT_MAX:
            left_out = (*left_out[: MCP_LEFT_OUT_MAX - 1], f"and {len(left_out) - MCP_LEFT_OUT_MAX + 1} more")
        return McpResolved(catalog=digest, tools=len(catalog.tools), left_out=left_out)

    @activity.defn(name=CALL_MCP_TOOL_ACTIVITY)
    async def call(self, request: McpCall) -> str | dict[str, Any]:
        """Call the tool and return its answer as the bounded text that the model sees, with what it has besides."""
        try:
            pinned = await self._pinned(request.catalog)
        except StorageFailed as error:
            raise ApplicationError(error.message, type=type(error).__name__) from None
        tool, proxy = pinned.described[request.name], pinned.proxies.get(request.name)
        if proxy is None:
            text = f"this worker does not know the MCP server {tool.server!r} any more; restart the right one"
            raise ApplicationError(text, type="ToolUnavailable", non_retryable=True)
        traits = proxy.traits
        refuse_spent(traits)
        if problem := await asyncio.to_thread(argument_problem, proxy, request.arguments):  # a hook's, or a person's
            raise failure_of(traits, error_record(InvalidArguments(problem), tool.name), again=False)
        with self._slots.one() if self._slots else nullcontext():
            reply = await self._attempted(request, tool, traits)
        return reply.text if is_plain(reply) else envelope(reply)

    async def pinned_tools(self, catalog: str) -> Sequence[AnyTool]:
        """Return the tools of a catalog that a run has pinned, for its toolset. Raises StorageFailed."""
        return tuple((await self._pinned(catalog)).proxies.values())

    async def _pinned(self, catalog: str) -> _Pinned:
        if catalog not in self._catalogs:
            tools = (await self._records.read_catalog(catalog)).tools
            proxies = {each.name: each for each in proxy_tools(tools, self._pool.servers)}
            while len(self._catalogs) >= CATALOGS_MAX:
                self._catalogs.pop(next(iter(self._catalogs)))
            self._catalogs[catalog] = _Pinned({each.name: each for each in tools}, proxies)
        return self._catalogs[catalog]

    async def _attempted(self, request: McpCall, tool: McpTool, traits: ToolTraits) -> ToolReply:
        info = activity.info()
        execution_id = info.workflow_id or ""
        context = ToolContext(
            execution_id=execution_id,
            idempotency_key=named_id(execution_id, info.activity_id),
            attempt=attempt_number(traits),
            step=request.step,
            call_id=request.call_id,
        )
        running = partial(self._reply, request, tool, traits, context)
        try:
            with self._spans.tool_call(tool.name, request.arguments) if self._spans else nullcontext() as span:
                reply = await attempted(traits, running)
                if span is not None:
                    span.answered(reply.text)
                return reply
        except (AttemptFailure, asyncio.CancelledError):
            raise
        except McpOutcomeUnknown as error:
            again = not traits.at_most_once
            record = error_record(error, tool.name) if again else ended_without_answer(traits, error.message)
            raise failure_of(traits, record, again=again) from None
        except Exception as error:  # noqa: BLE001  # the model is shown whatever a server does
            raise failure_of(traits, error_record(error, tool.name), again=False) from None

    async def _reply(self, request: McpCall, tool: McpTool, traits: ToolTraits, context: ToolContext) -> ToolReply:
        clock = asyncio.get_running_loop().time
        started_at = clock()
        server = self._pool.servers[tool.server]
        reports = CallReports(tool.name, context, pulse().report)
        try:
            answer = await call_mcp_tool(self._pool, server, tool, request.arguments, context, reports)
        finally:
            reports.ended()
        text = answer.text
        if self._results is not None:
            text = await self._results.bounded(text, context, traits.timeout_seconds - (clock() - started_at))
        reply = reply_to(answer, text)
        return await files_of(answer).kept(reply, self._records, traits.timeout_seconds - (clock() - started_at))
