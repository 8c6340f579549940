"""MCP servers as activities: `resolve_mcp` lists an agent's servers, `call_mcp_tool` makes one call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.attempt_admission import (
    AttemptFailure,
    attempt_number,
    attempted,
    attempts_until_now,
    failure_of,
    refuse_spent,
)
from activities.heartbeats import pulse
from activities.task_attempts import AttemptKeeper, age_of, refuse_second_call, resumed, task_under_way
from activities.tools import ToolSlots, envelope, is_plain
from holdfast.core.agent.execution_state import named_id, without_round
from holdfast.core.agent.toolset import chosen_mcp_tools
from holdfast.core.base.errors import HoldfastError, InvalidArguments, InvalidInput, ObjectMissing, StorageFailed
from holdfast.core.conversation.attempt_tally import McpTask
from holdfast.core.conversation.error_records import error_record
from holdfast.core.tools.mcp_catalog import McpCatalog, McpTool
from holdfast.core.tools.mcp_changes import McpToolsChange, tool_changes
from holdfast.core.tools.mcp_servers import McpServer, server_name
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tool_results import ToolReply
from holdfast.core.tools.tool_search import SEARCH_TOOL, query_of, search_result
from holdfast.core.tools.tool_traits import ToolTraits
from holdfast.core.tools.tools import AnyTool
from holdfast.core.wire.contracts import CALL_MCP_TOOL_ACTIVITY, RESOLVE_MCP_ACTIVITY
from holdfast.core.wire.mcp_contracts import (
    MCP_LEFT_OUT_MAX,
    McpCall,
    McpInputNeeded,
    McpRequest,
    McpResolved,
    McpSearch,
)
from holdfast.mcp.errors import FINAL
from holdfast.mcp.pool import McpPool
from holdfast.mcp.replies import files_of, reply_to
from holdfast.mcp.tools import McpProxyTool, call_mcp_tool, failure_record, proxy_tools, resume_mcp_task
from holdfast.runtime.argument_check import argument_problem
from holdfast.runtime.call_reports import CallReports
from holdfast.runtime.tool_runner import Results
from holdfast.storage.records import Records

if TYPE_CHECKING:  # an extra
    from holdfast.telemetry.spans import Spans

LOGGER: Final = logging.getLogger("holdfast.mcp")

CATALOGS_MAX: Final = 64
"""How many catalogs are kept as tools: every model call needs its run's."""


class _Pinned(NamedTuple):
    """A catalog's tools by name, as the server described them and as tools of ours, and the servers to call.

    `inline` are the names of those that the agent's definition describes.
    """

    servers: Mapping[str, McpServer]
    inline: frozenset[str]
    described: Mapping[str, McpTool]
    proxies: Mapping[str, McpProxyTool]

    def problem_with(self, server: str) -> str | None:
        """Return why this worker cannot call the tools of one of the catalog's servers, if so."""
        if server in self.servers:
            return None
        if server in self.inline:
            text = f"this worker refuses the MCP server {server!r}, which the agent describes itself"
            return f"{text}; start it with --mcp-inline, as the one that listed the server was"
        return f"this worker knows no MCP server {server!r} (any more); add it to its mcp.yaml and restart it"

    @property
    def problems(self) -> tuple[str, ...]:
        """What this worker lacks to call the catalog's tools, a line for each server."""
        found = map(self.problem_with, dict.fromkeys(tool.server for tool in self.described.values()))
        return tuple(each for each in found if each is not None)


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
            id_ = activity.info().workflow_id or ""
            catalog = await self._pool.catalog(request.servers, request.agent, id_, request.tenant)
            digest = await self._records.write_catalog(catalog)
            changes = await self._changes(catalog, request)
        except HoldfastError as error:
            final = isinstance(error, FINAL)
            raise ApplicationError(error.message, type=type(error).__name__, non_retryable=final) from None
        left_out = catalog.left_out
        if len(left_out) > MCP_LEFT_OUT_MAX:
            left_out = (*left_out[: MCP_LEFT_OUT_MAX - 1], f"and {len(left_out) - MCP_LEFT_OUT_MAX + 1} more")
        return McpResolved(catalog=digest, tools=len(catalog.tools), left_out=left_out, changes=changes)

    async def _changes(self, catalog: McpCatalog, request: McpRequest) -> tuple[McpToolsChange, ...]:
        """Return how the catalog differs from the agent's previous one; nothing if that one is not kept any more."""
        if request.previous is None or request.previous == catalog.digest:
            return ()
        try:
            older = await self._records.read_catalog(request.previous)
        except ObjectMissing:
            return ()
        return tool_changes(older, catalog, tuple(map(server_name, request.servers)))

    @activity.defn(name=CALL_MCP_TOOL_ACTIVITY)
    async def call(self, request: McpCall) -> str | dict[str, Any] | McpInputNeeded:
        """Call the tool and return its answer as the bounded text that the model sees, or what its server asks for.

        What the answer has besides its text makes it an object.
        """
        try:
            pinned = await self._pinned(request.catalog)
        except StorageFailed as error:
            pulse().leave(attempts_until_now().after_postponement())
            pulse().beat()
            raise ApplicationError(error.message, type=type(error).__name__) from None
        tool, proxy = pinned.described[request.name], pinned.proxies[request.name]
        if (problem := pinned.problem_with(tool.server)) is not None:
            raise ApplicationError(problem, type="ToolUnavailable", non_retryable=True)
        traits, server = proxy.traits, pinned.servers[tool.server]
        refuse_spent(traits)
        if _task_of(request) is not None:
            return _result(await self._attempted(request, tool, proxy, server))
        refuse_second_call(traits)
        if problem := await asyncio.to_thread(argument_problem, proxy, request.arguments):
            # the core has checked the model's arguments; a hook or a person may have changed them
            raise failure_of(traits, error_record(InvalidArguments(problem), tool.name), again=False)
        with self._slots.one() if self._slots else nullcontext():
            return _result(await self._attempted(request, tool, proxy, server))

    @activity.defn(name=SEARCH_TOOL)
    async def search(self, request: McpSearch) -> str:
        """Return the tools that fit a query best, as the bounded text that the model sees."""
        try:
            pinned = await self._pinned(request.catalog)
        except StorageFailed as error:
            raise ApplicationError(error.message, type=type(error).__name__) from None
        try:
            query = query_of(request.arguments)
        except InvalidArguments as error:
            raise ApplicationError(error.message, type=type(error).__name__, non_retryable=True) from None
        tools = chosen_mcp_tools(pinned.proxies.values(), request.tools, request.tools_deny)
        return await asyncio.to_thread(search_result, query, [tool.schema for tool in tools])

    async def pinned_tools(self, catalog: str) -> Sequence[AnyTool]:
        """Return the tools of a catalog that a run has pinned, whether they can be called here or not.

        Raises StorageFailed.
        """
        return tuple((await self._pinned(catalog)).proxies.values())

    async def callable_tools(self, catalog: str) -> Sequence[AnyTool]:
        """Return the tools of a catalog. Raises InvalidInput where this worker lacks one of its servers, StorageFailed.

        Another worker listed it: their settings differ.
        """
        pinned = await self._pinned(catalog)
        if pinned.problems:
            raise InvalidInput(f"another worker listed the agent's MCP servers, and {'; '.join(pinned.problems)}")
        return tuple(pinned.proxies.values())

    async def _pinned(self, catalog: str) -> _Pinned:
        if catalog not in self._catalogs:
            stored = await self._records.read_catalog(catalog)
            tools, servers = stored.tools, self._pool.servers_of(stored)
            proxies = {each.name: each for each in proxy_tools(tools, servers)}
            while len(self._catalogs) >= CATALOGS_MAX:
                self._catalogs.pop(next(iter(self._catalogs)))
            inline = frozenset(each.name for each in stored.inline)
            pinned = _Pinned(servers, inline, {each.name: each for each in tools}, proxies)
            for problem in pinned.problems:
                LOGGER.warning("a run has tools whose calls fail here: %s", problem)
            self._catalogs[catalog] = pinned
        return self._catalogs[catalog]

    async def _attempted(
        self, request: McpCall, tool: McpTool, proxy: McpProxyTool, server: McpServer
    ) -> ToolReply | McpInputNeeded:
        info, traits = activity.info(), proxy.traits
        execution_id = info.workflow_id or ""
        context = ToolContext(
            execution_id=execution_id,
            idempotency_key=named_id(execution_id, without_round(info.activity_id)),
            attempt=attempt_number(traits),
            step=request.step,
            call_id=request.call_id,
            tenant=request.tenant,
        )
        task = _task_of(request)
        running = partial(self._reply, request, tool, traits, server, context, task)
        try:
            with self._spans.tool_call(tool.name, request.arguments) if self._spans else nullcontext() as span:
                reply = await (attempted(traits, running) if task is None else resumed(task, running))
                if span is not None:
                    span.answered("" if isinstance(reply, McpInputNeeded) else reply.text)
                return reply
        except (AttemptFailure, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001  # the model is shown whatever a server does
            raise failure_of(traits, failure_record(error, traits), again=proxy.tries_again(error)) from None

    async def _reply(
        self,
        request: McpCall,
        tool: McpTool,
        traits: ToolTraits,
        server: McpServer,
        context: ToolContext,
        task: McpTask | None,
    ) -> ToolReply | McpInputNeeded:
        clock = asyncio.get_running_loop().time
        ends_at = clock() + traits.timeout_seconds
        reports = CallReports(tool.name, context, pulse().report)
        keeper = AttemptKeeper()
        try:
            if task is None:
                answer = await call_mcp_tool(
                    self._pool, server, tool, request.arguments, context, reports, keeper, request.inputs
                )
            else:
                age, inputs = age_of(task), request.inputs
                answer = await resume_mcp_task(
                    self._pool, server, tool, task, age, context, reporter=reports, keeper=keeper, inputs=inputs
                )
        finally:
            reports.ended()
        if isinstance(answer, McpInputNeeded):
            return answer
        text = answer.text
        if self._results is not None:
            text = await self._results.bounded(text, context, ends_at - clock())
        return await files_of(answer).kept(reply_to(answer, text), self._records, ends_at - clock())


def _task_of(request: McpCall) -> McpTask | None:
    return task_under_way(request.inputs.task if request.inputs else None)


def _result(reply: ToolReply | McpInputNeeded) -> str | dict[str, Any] | McpInputNeeded:
    if isinstance(reply, McpInputNeeded):
        return reply
    return reply.text if is_plain(reply) else envelope(reply)
