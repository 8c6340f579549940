"""MCP tools as tools of ours: a catalog's entries with the traits that their server's settings give them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from dataclasses import replace as replaced
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pydantic import JsonValue

from holdfast.core.base.bounds import TOOL_DESCRIPTION_CHARS_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.attempt_tally import McpTask
from holdfast.core.conversation.error_records import error_record
from holdfast.core.conversation.steps import ErrorRecord
from holdfast.core.tools.mcp_catalog import McpCatalog, McpTool
from holdfast.core.tools.mcp_servers import CALL_SECONDS, McpServer
from holdfast.core.tools.remote_tools import RemoteTool
from holdfast.core.tools.schema_arguments import any_arguments
from holdfast.core.tools.tool_context import NO_REPORTER, CallReporter, ToolContext
from holdfast.core.tools.tool_errors import ended_without_answer
from holdfast.core.tools.tool_results import ToolReply
from holdfast.core.tools.tool_traits import TIMEOUT_SECONDS_MAX, ToolSchema, ToolTraits, traits_of, with_schema
from holdfast.core.wire.mcp_contracts import McpInputNeeded, McpInputs
from holdfast.mcp.errors import McpCallFailed, McpOutcomeUnknown, McpUnavailable
from holdfast.mcp.pool import McpPool
from holdfast.mcp.replies import attached
from holdfast.mcp.task_keeper import NO_KEEPER, TaskKeeper

if TYPE_CHECKING:  # an extra
    from holdfast.mcp.answers import McpAnswer
    from holdfast.mcp.elicitation import ServerQuestions
    from holdfast.mcp.task_messages import CreatedTask

TRIES_MAX: Final = 3
"""How often a server is tried that cannot be reached: nothing has been called yet."""

WAIT_SECONDS: Final = 0.5
"""The wait after the first such try; each further one is twice as long."""

KEY_META: Final = "holdfast.dev/idempotency-key"
"""The key of a call in the request's `_meta`: the same for every attempt."""


@dataclass(frozen=True, slots=True)
class McpProxyTool(RemoteTool):
    """An MCP server's tool among an agent's; its arguments are checked against its schema like a remote tool's."""

    def tries_again(self, error: BaseException) -> bool:
        """Return whether a call that raised `error` is repeated: one whose answer was lost, if it may be."""
        return isinstance(error, McpOutcomeUnknown) and not self.traits.at_most_once


def schema_of(tool: McpTool) -> ToolSchema:
    """Return the tool as a model sees it."""
    description = clamped(tool.description, TOOL_DESCRIPTION_CHARS_MAX)
    return ToolSchema(name=tool.name, description=description, parameters=tool.parameters)


def traits_for(tool: McpTool, server: McpServer | None) -> ToolTraits:
    """Return the tool's traits: at most once, unless it says that it is repeatable and its server is trusted.

    Without `server` they are those of a tool that can only be described here.
    """
    again = server is not None and server.trusted and tool.repeatable
    seconds = CALL_SECONDS if server is None else server.timeout_seconds
    seconds += server.task_seconds_max if server is not None and tool.tasks else 0
    options: dict[str, Any] = {"timeout_seconds": min(seconds, TIMEOUT_SECONDS_MAX)}
    options |= {"idempotent": True} if again else {"at_most_once": True}
    traits = with_schema(traits_of(tool.name, options), schema_of(tool))
    return replace(traits, mcp=tool.server, mcp_digest=tool.digest, resumable=bool(tool.tasks))


def proxy_tools(tools: Iterable[McpTool], servers: Mapping[str, McpServer]) -> tuple[McpProxyTool, ...]:
    """Return the catalog's tools for a toolset; they are called as activities, by name.

    Those of a server that is not among `servers` are there, too: a run keeps the tools that it began with.
    """
    return tuple(_proxy(tool, servers.get(tool.server)) for tool in tools)


def connected_tools(catalog: McpCatalog, pool: McpPool) -> tuple[McpProxyTool, ...]:
    """Return the catalog's tools as ones that can be called in this process, over the connections of `pool`."""
    servers, described = pool.servers_of(catalog), {tool.name: tool for tool in catalog.tools}
    return tuple(
        replaced(
            proxy,
            function=partial(_called, pool, servers[described[proxy.name].server], described[proxy.name]),
            context_parameter="context",
            object_parameter="arguments",
        )
        for proxy in proxy_tools((tool for tool in catalog.tools if tool.server in servers), servers)
    )


def failure_record(error: Exception, traits: ToolTraits) -> ErrorRecord:
    """Return what the model is told of a failed call; that its outcome is unknown, where it may not be repeated."""
    if isinstance(error, McpOutcomeUnknown) and traits.at_most_once:
        return ended_without_answer(traits, error.message)
    return error_record(error, traits.name)


def _proxy(tool: McpTool, server: McpServer | None) -> McpProxyTool:
    return McpProxyTool(
        _elsewhere(tool.name),
        schema_of(tool),
        traits_for(tool, server),
        any_arguments(tool.name),
        None,
        checked_by_schema=True,
        source=f"the MCP server {tool.server!r}",
    )


async def call_mcp_tool(
    pool: McpPool,
    server: McpServer,
    tool: McpTool,
    arguments: Mapping[str, JsonValue],
    context: ToolContext,
    reporter: CallReporter = NO_REPORTER,
    keeper: TaskKeeper = NO_KEEPER,
    inputs: McpInputs | None = None,
) -> McpAnswer | McpInputNeeded:
    """Call the tool, and return its answer, or what its server asks a person for before it goes on.

    Cancelling this cancels the call at the server. `inputs` goes on with a call whose server has asked.
    `reporter` gets what the server reports of its progress, and `keeper` the task that it may make of the call.

    Raises McpUnavailable when the server cannot be reached in TRIES_MAX tries, McpCallFailed for an error of the tool's
    or the server's, and McpOutcomeUnknown.
    """

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reporter.progress(message or "", min(progress / total, 1.0) if total and total > 0 else None)

    async def on_task(created: CreatedTask) -> McpAnswer:
        from holdfast.mcp.tasks import task_of  # noqa: PLC0415  # an extra

        return await task_of(pool, server, created.task_id, context.execution_id, context.tenant).begun(
            created, keeper, reporter
        )

    for tried in range(1, TRIES_MAX + 1):
        try:
            async with pool.connection(server, context.execution_id, context.tenant) as connection:
                meta = {KEY_META: context.idempotency_key}
                answer = await connection.call(
                    *(tool.tool, arguments),
                    meta=meta,
                    on_progress=report,
                    on_task=on_task,
                    inputs=inputs,
                    parameters=tool.parameters,
                )
        except McpUnavailable:
            if tried == TRIES_MAX:
                raise
            await asyncio.sleep(WAIT_SECONDS * 2 ** (tried - 1))
        else:
            if answer.questions is not None:
                return _input_needed(server, answer.questions)
            return await _checked(answer, tool)
    raise AssertionError("the last try returns or raises")


async def resume_mcp_task(  # noqa: PLR0913  # what a call needs, and the task
    pool: McpPool,
    server: McpServer,
    tool: McpTool,
    task: McpTask,
    age_seconds: float,
    context: ToolContext,
    *,
    reporter: CallReporter = NO_REPORTER,
    keeper: TaskKeeper = NO_KEEPER,
    inputs: McpInputs | None = None,
) -> McpAnswer | McpInputNeeded:
    """Return the answer of a task that is under way, `age_seconds` after it was created; call nothing.

    `inputs` answers what it asked for. Returns what it asks for next, and raises, as `call_mcp_tool` does.
    """
    from holdfast.mcp.tasks import task_of  # noqa: PLC0415  # an extra

    resumed = task_of(pool, server, task.id, context.execution_id, context.tenant)
    answer = await resumed.resumed(age_seconds, keeper, reporter, inputs.responses if inputs else None)
    return await _checked(answer, tool) if answer.questions is None else _input_needed(server, answer.questions)


def _input_needed(server: McpServer, questions: ServerQuestions) -> McpInputNeeded:
    return McpInputNeeded(
        server=server.name,
        requests=questions.requests,
        seconds_max=server.answer_seconds,
        request_state=questions.request_state,
        task=questions.task,
    )


async def _checked(answer: McpAnswer, tool: McpTool) -> McpAnswer:
    """Return the answer, with a warning where it breaks its schema. Raises McpCallFailed for the tool's own error."""
    if isinstance(tool.output, dict):
        answer = await asyncio.to_thread(answer.with_warning, tool.output)
    if answer.is_error:
        raise McpCallFailed(answer.text or "the tool reports an error without a text")
    return answer


async def _called(
    pool: McpPool, server: McpServer, tool: McpTool, *, arguments: Mapping[str, JsonValue], context: ToolContext
) -> ToolReply:
    answer = await call_mcp_tool(pool, server, tool, arguments, context, context.reporter)
    if isinstance(answer, McpInputNeeded):
        if answer.task is not None:
            from holdfast.mcp.tasks import task_of  # noqa: PLC0415  # an extra

            await task_of(pool, server, answer.task, context.execution_id, context.tenant).cancel()
        asked = "; ".join(each.message for each in answer.requests)
        problem = f"its server asks a person, and an in-process run cannot wait for the answer: {asked}"
        raise McpCallFailed(f"{problem}; run the agent on Temporal")
    return attached(answer, context)


def _elsewhere(name: str) -> Callable[..., NoReturn]:
    def called_here(**_: object) -> NoReturn:
        raise InvalidInput(f"the tool {name!r} is an MCP server's; it cannot be called here")

    return called_here
