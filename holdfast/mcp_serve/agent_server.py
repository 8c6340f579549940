"""`AgentServer`: the MCP server whose tools are agents, whatever the transport. It decides nothing about runs."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from mcp.server import Server, ServerRequestContext
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams

from holdfast import __version__
from holdfast.client import Holdfast
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.base.did_you_mean import suggestion
from holdfast.core.base.errors import Conflict, HoldfastError
from holdfast.mcp_serve.open_runs import OpenRun, OpenRuns, Report
from holdfast.mcp_serve.requests import (
    AgentArguments,
    GetRunArguments,
    StopRunArguments,
    checked_arguments,
    run_request,
)
from holdfast.mcp_serve.results import error_result, result_of, stopping
from holdfast.mcp_serve.run_files import file_contents
from holdfast.mcp_serve.tool_listing import GET_RUN, STOP_RUN, listed_tools

CALLS_MAX: Final = 128
"""The most calls at work at the same time."""

GONE_MAX: Final = 1_000
"""The most requests of which one sign of their end is known, the call's or the client's cancel, and not the other."""

INSTRUCTIONS: Final = (
    "Each tool is an agent that works durably: a run survives crashes. A call waits for the answer; with "
    "`wait_seconds` it returns the run's id after that time, for `get_run` and `stop_run`."
)

OnDisconnect: TypeAlias = Literal["stop", "continue"]
"""What becomes of a run whose caller has vanished: its connection broke, or its program ended."""

Context: TypeAlias = ServerRequestContext[Any, Any]
RequestKey: TypeAlias = tuple[str, str]
"""What tells a request from others: its session over HTTP, where there is one, and its id."""


class AgentServer:
    """Offers `agents`, which `check_offered` has seen, as tools: `server` is the SDK's, for a transport to run.

    A request that its client cancels stops its run, unless another call waits for the same run. So does a client that
    vanishes, with `on_disconnect` stop. Over HTTP the newer protocol cancels a call by closing its stream: then a
    cancel and a lost client look the same.
    """

    def __init__(self, client: Holdfast, agents: Mapping[str, AgentDefinition], on_disconnect: OnDisconnect) -> None:
        self._client = client
        self._agents = dict(agents)
        self._runs = OpenRuns(client, self._agents)
        self._tools = listed_tools(agents.values())
        self._on_disconnect = on_disconnect
        self._calls = 0
        self._gone: OrderedDict[RequestKey, OpenRun | None] = OrderedDict()
        self._is_leaving = False
        self.server: Final = Server[Any](
            "holdfast",
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        self.server.middleware.append(self._observe)

    def leave_runs(self) -> None:
        """Stop no run any more for a request that goes away: it is this server that ends."""
        self._is_leaving = True

    async def close(self) -> None:
        """Let stops under way reach the Temporal server, in bounded time; open runs go on."""
        await self._runs.close()

    async def _list_tools(self, _context: Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=self._tools)

    async def _call_tool(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        known = (*self._agents, GET_RUN, STOP_RUN)
        if params.name not in known:
            problem = f"no tool is called {params.name[:80]!r}; {suggestion(params.name, known)}"
            raise MCPError(INVALID_PARAMS, problem)
        if self._calls >= CALLS_MAX:
            return error_result(Conflict(f"{CALLS_MAX} calls are at work; call again when one of them has ended"))
        self._calls += 1
        try:
            return await self._answer(context, params)
        except HoldfastError as error:
            return error_result(error)
        finally:
            self._calls -= 1

    async def _answer(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        if params.name == GET_RUN:
            return await self._get_run(context, checked_arguments(GetRunArguments, params.arguments))
        if params.name == STOP_RUN:
            return await self._stop_run(checked_arguments(StopRunArguments, params.arguments))
        arguments = checked_arguments(AgentArguments, params.arguments)
        run = await self._runs.begin(run_request(params.name, arguments, context.meta))
        return await self._awaited(context, run, arguments.wait_seconds)

    async def _get_run(self, context: Context, arguments: GetRunArguments) -> CallToolResult:
        run = await self._runs.find(arguments.run_id)
        await self._runs.wait(run, arguments.wait_seconds, _reporter(context))
        return await self._result_of(run)

    async def _stop_run(self, arguments: StopRunArguments) -> CallToolResult:
        run = await self._runs.find(arguments.run_id)
        if run.is_over:
            return await self._result_of(run)
        await self._runs.stop(run, arguments.reason or "an MCP client asked for it")
        return stopping(run)

    async def _awaited(self, context: Context, run: OpenRun, seconds_max: float | None) -> CallToolResult:
        """Return the run's answer, or a handle on it; a call that is cancelled meanwhile stops the run."""
        try:
            await self._runs.wait(run, seconds_max, _reporter(context))
        except asyncio.CancelledError:
            self._abandon(_key(context, context.request_id), run)
            raise
        return await self._result_of(run)

    async def _result_of(self, run: OpenRun) -> CallToolResult:
        """Return the answer of a run that is over, with its files, or a handle on one that is not."""
        result = result_of(run)
        if run.state is not None:
            result.content += await file_contents(self._client, run.run_id, run.state.attachments)
        return result

    def _abandon(self, key: RequestKey, run: OpenRun) -> None:
        """Stop the run of a request that has gone; with `continue`, only once its client has cancelled it."""
        if self._is_leaving or run.callers:
            return
        if self._on_disconnect == "stop" or key in self._gone:
            self._runs.stop_later(run, "its MCP client cancelled the call, or has gone")
        else:
            self._remember(key, run)

    def _remember(self, key: RequestKey, run: OpenRun | None) -> None:
        self._gone[key] = run
        if len(self._gone) > GONE_MAX:
            self._gone.popitem(last=False)

    async def _observe(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Note which requests their clients cancelled: with `continue` only that stops a run.

        The call's own end, which `_abandon` learns of, comes before or after the client's notice.
        """
        if ctx.method == "notifications/cancelled" and self._on_disconnect == "continue":
            key = _key(ctx, (ctx.params or {}).get("requestId"))
            run = self._gone.pop(key, None)
            if run is None:
                self._remember(key, None)
            elif not run.callers:
                self._runs.stop_later(run, "its MCP client cancelled the call")
        return await call_next(ctx)


def _key(context: Context, request_id: object) -> RequestKey:
    headers: Mapping[str, str] = getattr(context.request, "headers", None) or {}
    return headers.get("mcp-session-id", ""), str(request_id)


def _reporter(context: Context) -> Report:
    """Return what sends a line as progress, if the caller wants any; each is one more than the last."""
    count = 0

    async def report(line: str) -> None:
        nonlocal count
        count += 1
        await context.session.report_progress(count, message=line)

    return report
