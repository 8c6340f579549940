"""Tools as activities: one activity type per tool; the input is its arguments, the result bounded text."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pydantic_core import from_json
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.attempt_admission import (
    AttemptFailure,
    attempt_number,
    attempted,
    attempts_used,
    failure_of,
    refuse_spent,
)
from activities.heartbeats import pulse
from activities.run_conversation import RunConversation
from holdfast.core.agent.definition import LLM, AgentDefinition
from holdfast.core.agent.execution_state import named_id
from holdfast.core.agent.handoffs import HANDOFF_TOOL
from holdfast.core.agent.model import Model, problem_with, problem_with_files
from holdfast.core.agent.policies import ContextPolicy
from holdfast.core.agent.subagents import SPAWN_TOOL
from holdfast.core.agent.tool_selection import check_server_tools, check_tool_choice
from holdfast.core.agent.toolset import AgentToolset, Toolset, with_mcp_tools
from holdfast.core.base.bounds import TOOLS_MAX
from holdfast.core.base.errors import InvalidInput
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.error_records import error_record
from holdfast.core.tools.call_context import NO_CALL, CallContext
from holdfast.core.tools.code_mode import CodeMode, with_code
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tool_results import ToolReply
from holdfast.core.tools.tool_search import too_many, with_search
from holdfast.core.tools.tool_traits import ToolSchema, ToolTraits
from holdfast.core.tools.tools import AnyTool
from holdfast.core.wire.argument_check_contracts import CHECK_ARGUMENTS_ACTIVITY, ArgumentsCheck, ArgumentsChecked
from holdfast.core.wire.contracts import REPLY_KIND, RESOLVE_TOOLS_ACTIVITY, TAKE_UP_ACTIVITY, TOOLS_BUSY, PickupTime
from holdfast.core.wire.record_store import AttachmentStore
from holdfast.core.wire.tool_catalog import ToolCatalog, ToolsRequest
from holdfast.models.rate_limits.route_queues import queued_models
from holdfast.runtime.argument_check import argument_problem
from holdfast.runtime.open_resources import NO_RESOURCES, OpenResources
from holdfast.runtime.prices import PriceList
from holdfast.runtime.script_runner import check_installed
from holdfast.runtime.tool_runner import Results, run_tool

if TYPE_CHECKING:  # an extra
    from holdfast.telemetry.spans import Spans


class ToolSlots:
    """A bound on the running tool calls that share the model calls' task queue.

    Tools share it because the SDK starts an activity eagerly, without the server, only on the scheduling worker's own
    queue (a separate queue costs tools 13 % of a step, measured). A worker takes calls from the queue before it knows
    what they are. One too many is refused at once, and its run puts it into the waiting queue, so hung tools never take
    the slots of model calls.
    """

    def __init__(self, slots_max: int) -> None:
        self._free = slots_max

    @contextmanager
    def one(self) -> Generator[None]:
        """Hold a slot. Raises ApplicationError of type TOOLS_BUSY if none is free."""
        # asyncio is single-threaded: nothing else runs between this check and the count
        if not self._free:
            raise ApplicationError(
                "all slots for tools are taken",
                attempts_used(),
                type=TOOLS_BUSY,
                non_retryable=True,
                category=ApplicationErrorCategory.BENIGN,
            )
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1


def tool_activities(
    tools: Iterable[AnyTool],
    slots: ToolSlots | None = None,
    results: Results | None = None,
    spans: Spans | None = None,
    resources: OpenResources = NO_RESOURCES,
    attachments: AttachmentStore | None = None,
) -> list[Callable[..., Any]]:
    """Return an activity for each tool, with the tool's name; tools that are not `local` share `slots`.

    `results` stores results that are too long for a model. `spans` traces each attempt. `resources` are what the tools
    share, `attachments` keeps the files that they attach.
    """
    around = _Around(results, spans, resources, attachments)
    return [_activity_of(tool, None if tool.traits.local else slots, around) for tool in tools]


class _Around(NamedTuple):
    """What a worker's tools share."""

    results: Results | None
    spans: Spans | None
    resources: OpenResources
    attachments: AttachmentStore | None


def _activity_of(tool: AnyTool, slots: ToolSlots | None, around: _Around) -> Callable[..., Any]:
    @activity.defn(name=tool.name)
    async def run(
        arguments: dict[str, Any],
        call: Any = None,  # noqa: ANN401  # JSON
        metadata: Any = None,  # noqa: ANN401  # bytes of JSON
    ) -> str | dict[str, Any]:
        # a local activity has no server-side attempts to count
        if not tool.traits.local:
            refuse_spent(tool.traits)
        with slots.one() if slots else nullcontext():
            reply = await _run(tool, arguments, _call_context(call, metadata), around)
        # plain text is the common result; only what asks for more than that pays for the envelope in the history
        return reply.text if is_plain(reply) else envelope(reply)

    return run


def is_plain(reply: ToolReply) -> bool:
    """Return whether a reply is nothing but its text."""
    more = reply.metadata or reply.attachments or reply.structured or reply.mcp_process or reply.workspace
    return reply.stop is None and not more and reply.result_type == "text"


def envelope(reply: ToolReply) -> dict[str, Any]:
    """Return a reply as an activity's result: an object that leaves out what the reply does not have."""
    fields: dict[str, Any] = {"kind": REPLY_KIND, "text": reply.text}
    if reply.result_type != "text":
        fields["type"] = reply.result_type
    if reply.stop is not None:
        fields |= {"stop": reply.stop, "context": dict(reply.stop_context)}
    if reply.metadata:
        fields["metadata"] = dict(reply.metadata)
    if reply.structured is not None:
        fields["structured"] = reply.structured
    if reply.attachments:
        fields["attachments"] = [each.model_dump(mode="json") for each in reply.attachments]
    if reply.mcp_process:
        fields["mcp_process"] = reply.mcp_process
    if reply.workspace:
        fields["workspace"] = reply.workspace
    return fields


def _call_context(value: object, metadata: object) -> CallContext:
    """Return the call's context from its input; long metadata comes behind it, as bytes."""
    call = CallContext.model_validate(value) if isinstance(value, dict) else NO_CALL
    return replace(call, metadata=from_json(metadata)) if isinstance(metadata, bytes) else call


async def _run(tool: AnyTool, arguments: dict[str, Any], call: CallContext, around: _Around) -> ToolReply:
    info = activity.info()
    execution_id = info.workflow_id or ""
    key = named_id(execution_id, info.activity_id)
    attempt = attempt_number(tool.traits)
    context = ToolContext.of(call, execution_id=execution_id, idempotency_key=key, attempt=attempt)
    context = dataclasses.replace(context, conversation=RunConversation.here())
    running = partial(
        run_tool,
        tool,
        arguments,
        context,
        results=around.results,
        resources=around.resources,
        apart=True,  # from the event loop, which heartbeats and calls the model
        on_progress=None if info.is_local else pulse().report,
        attachments=around.attachments,
    )
    try:
        with around.spans.tool_call(tool.name, arguments) if around.spans else nullcontext() as span:
            reply = await attempted(tool.traits, running)
            if span is not None:
                span.answered(reply.text)
            return reply
    except (AttemptFailure, asyncio.CancelledError):
        raise
    except Exception as error:  # noqa: BLE001  # the model is shown whatever a tool raises
        raise failure_of(tool.traits, error_record(error, tool.name), again=tool.tries_again(error)) from None


def _check_tool_names(request: ToolsRequest, tools: tuple[ToolTraits, ...]) -> None:
    """Fail without retry where a call is forced of a tool that the model is not shown, or two tools have one name."""
    llm = request.llm or LLM()
    shown = (*(each.name for each in tools if not each.deferred), SPAWN_TOOL, HANDOFF_TOOL)
    try:
        check_tool_choice(request.agent, llm.tool_choice, shown)
        check_server_tools(request.agent, llm.server_tools, shown)
    except InvalidInput as error:
        raise ApplicationError(error.message, type=type(error).__name__, non_retryable=True) from None


def _with_code(
    tools: tuple[ToolTraits, ...], search: tuple[ToolSchema, ...], equipment: AgentToolset, mode: CodeMode
) -> tuple[tuple[ToolTraits, ...], tuple[ToolSchema, ...]]:
    """Return the tools and stand-ins with `run_code`. What this worker cannot offer fails without retry."""
    try:
        check_installed()
        tools, schema = with_code(tools, {name: tool.schema for name, tool in equipment.tools.items()}, mode)
    except InvalidInput as error:
        raise ApplicationError(error.message, type=type(error).__name__, non_retryable=True) from None
    return tools, (*search, schema)


@activity.defn(name=TAKE_UP_ACTIVITY)
async def take_up(request: PickupTime) -> PickupTime:
    """Return the request: as a local activity's result, its moment is recorded in the history."""
    return request


class PinnedTools(Protocol):
    """The MCP tools that runs have pinned."""

    async def pinned_tools(self, catalog: str) -> Sequence[AnyTool]:
        """Return the tools of the catalog with that digest."""
        ...

    async def callable_tools(self, catalog: str) -> Sequence[AnyTool]:
        """Return the same. Raises InvalidInput where this worker cannot call them."""
        ...


class Catalog:
    """Resolves which of this worker's tools and hooks an agent gets, and checks arguments against a tool."""

    def __init__(
        self, toolset: Toolset, prices: PriceList, mcp: PinnedTools | None = None, model: Model | None = None
    ) -> None:
        self._toolset = toolset
        self._prices = prices
        self._mcp = mcp
        self._model = model

    @activity.defn(name=CHECK_ARGUMENTS_ACTIVITY)
    async def check(self, request: ArgumentsCheck) -> ArgumentsChecked:
        """Return the problem with arguments that a person edited; a tool of another worker checks them itself."""
        pinned = await self._mcp.pinned_tools(request.mcp) if request.mcp is not None and self._mcp is not None else ()
        tool = next((each for each in (*self._toolset.tools, *pinned) if each.name == request.tool), None)
        if tool is None:
            return ArgumentsChecked(problem=None)
        return ArgumentsChecked(problem=await asyncio.to_thread(argument_problem, tool, request.arguments))

    @activity.defn(name=RESOLVE_TOOLS_ACTIVITY)
    async def resolve(self, request: ToolsRequest) -> ToolCatalog:
        """Return the traits of what `request` names. An unknown name fails without retry, also that of a model."""
        llm = request.llm or LLM(model=request.model)
        if self._model is not None:
            # in a thread: it may import a client
            problem = await asyncio.to_thread(problem_with, self._model, llm)
            if problem := problem or await asyncio.to_thread(problem_with_files, self._model, llm, request.files):
                text = f"agent {request.agent!r}: {problem}"
                raise ApplicationError(text, type=InvalidInput.__name__, non_retryable=True)
        definition = AgentDefinition(
            name=request.agent,
            tools=request.tools,
            tools_deny=request.tools_deny,
            hooks=request.hooks,
            capabilities=request.capabilities,
            workspace=request.workspace,
            context=ContextPolicy(compiler=request.compiler),
            approvals=request.approvals,
        )
        toolset = self._toolset
        try:
            toolset.check_workspace(definition)
            if request.mcp is not None and self._mcp is not None:
                pinned = await self._mcp.callable_tools(request.mcp)
                toolset, definition = with_mcp_tools(toolset, definition, pinned)
        except InvalidInput as error:  # no module would mend it
            raise ApplicationError(error.message, type=type(error).__name__, non_retryable=True) from None
        try:
            equipment = toolset.equip(definition)
        except InvalidInput as error:
            text = f"{error.message} (what this worker offers; start it with `--import MODULE` for those of a module)"
            raise ApplicationError(text, type=type(error).__name__, non_retryable=True) from None
        tools = tuple(tool.traits for tool in equipment.tools.values())
        search: tuple[ToolSchema, ...] = ()
        # a synchronous read would block heartbeats and all other calls of the worker
        window = await asyncio.to_thread(self._prices.window_of, request.model)  # the first time it reads a table
        if too_many(tools, request.loop_tools, TOOLS_MAX, window):
            tools, search = with_search(tools)
        if request.code is not None:
            tools, search = _with_code(tools, search, equipment, request.code)
        _check_tool_names(request, tools)
        return ToolCatalog(
            at=request.at,
            tools=tools,
            hooks=tuple(hook.traits for hook in equipment.hooks.values()),
            prompt=equipment.definition.system_prompt,
            prompts=bool(equipment.prompts),
            mcp=request.mcp,
            search=search,
            prices=await asyncio.to_thread(self._prices.of, request.model, llm.service_tier),
            window=window,
            longest_answer=self._prices.longest_answer_of(request.model),
            fallback=await asyncio.to_thread(self._prices.known_routes, llm.fallback, llm.service_tier),
            queued_models={} if self._model is None else queued_models(self._model),
        )
