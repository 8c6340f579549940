"""Tools as activities: one activity type per tool, its input the arguments alone, its result bounded text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pydantic import JsonValue
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
from holdfast.core.agent.definition import AgentDefinition
from holdfast.core.agent.execution_state import named_id
from holdfast.core.agent.policies import ContextPolicy
from holdfast.core.agent.tools import AnyTool, ToolContext, ToolReply
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import InvalidInput
from holdfast.core.conversation.error_records import error_record
from holdfast.core.wire.argument_check_contracts import CHECK_ARGUMENTS_ACTIVITY, ArgumentsCheck, ArgumentsChecked
from holdfast.core.wire.contracts import (
    REPLY_KIND,
    RESOLVE_TOOLS_ACTIVITY,
    TAKE_UP_ACTIVITY,
    TOOLS_BUSY,
    PickupTime,
    ToolCatalog,
    ToolsRequest,
)
from holdfast.runtime.argument_check import argument_problem
from holdfast.runtime.prices import PriceList
from holdfast.runtime.tool_runner import Results, run_tool

if TYPE_CHECKING:  # an extra
    from holdfast.telemetry.spans import Spans


class ToolSlots:
    """How many tool calls may be at work at once, of those that share the model calls' queue.

    Calls are taken from that queue before anybody knows what they are: the SDK hands an activity to the very worker
    that scheduled it, without a way over the server, on the worker's own queue alone (a queue of their own costs tools
    13 % of a step, measured). One too many is refused at once, and its run puts it into the waiting queue: so hung
    tools never take the slots of model calls.
    """

    def __init__(self, slots_max: int) -> None:
        self._free = slots_max

    @contextmanager
    def one(self) -> Generator[None]:
        """Hold a slot; raises ApplicationError of the type TOOLS_BUSY when there is none."""
        # asyncio is single-threaded: between this look and the count nothing else runs
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
) -> list[Callable[..., Any]]:
    """Return an activity for each tool, of the tool's name; those that are not `local` share `slots`.

    `results` keeps what is too long to be shown to a model. `spans` tells of each attempt.
    """
    return [_activity_of(tool, None if tool.traits.local else slots, results, spans) for tool in tools]


def _activity_of(
    tool: AnyTool, slots: ToolSlots | None, results: Results | None, spans: Spans | None
) -> Callable[..., Any]:
    @activity.defn(name=tool.name)
    async def run(arguments: dict[str, Any], metadata: Any = None) -> str | dict[str, Any]:  # noqa: ANN401  # JSON or bytes of it
        # a local activity has no server-side attempts to count
        if not tool.traits.local:
            refuse_spent(tool.traits)
        with slots.one() if slots else nullcontext():
            reply = await _run(tool, arguments, _metadata(metadata), results, spans)
        if reply.stop is None:
            return reply.text
        # a plain text is the common result; the envelope costs bytes of history only where a stop is asked for
        return {"kind": REPLY_KIND, "text": reply.text, "stop": reply.stop, "context": dict(reply.stop_context)}

    return run


def _metadata(value: object) -> Mapping[str, JsonValue]:
    """Return the agent's metadata as a call's input holds them; long ones come as bytes."""
    if isinstance(value, bytes):
        value = from_json(value)
    return cast("Mapping[str, JsonValue]", value) if isinstance(value, dict) else {}


async def _run(
    tool: AnyTool,
    arguments: dict[str, Any],
    metadata: Mapping[str, JsonValue],
    results: Results | None,
    spans: Spans | None,
) -> ToolReply:
    info = activity.info()
    execution_id = info.workflow_id or ""
    context = ToolContext(
        execution_id=execution_id,
        idempotency_key=named_id(execution_id, info.activity_id),
        attempt=attempt_number(tool.traits),
        metadata=metadata,
    )
    running = partial(run_tool, tool, arguments, context, results=results, apart=True)
    try:
        with spans.tool_call(tool.name, arguments) if spans else nullcontext() as span:
            # apart from the loop that heartbeats and talks to the model
            reply = await attempted(tool.traits, running)
            if span is not None:
                span.answered(reply.text)
            return reply
    except (AttemptFailure, asyncio.CancelledError):
        raise
    except Exception as error:  # noqa: BLE001  # whatever a tool raises is told to the model
        raise failure_of(tool.traits, error_record(error, tool.name), again=tool.tries_again(error)) from None


@activity.defn(name=TAKE_UP_ACTIVITY)
async def take_up(request: PickupTime) -> PickupTime:
    """Return what was asked: as a local activity's result, the moment is recorded."""
    return request


class Catalog:
    """Answers which of this worker's tools and hooks an agent gets, and whether arguments fit a tool."""

    def __init__(self, toolset: Toolset, prices: PriceList) -> None:
        self._toolset = toolset
        self._prices = prices

    @activity.defn(name=CHECK_ARGUMENTS_ACTIVITY)
    async def check(self, request: ArgumentsCheck) -> ArgumentsChecked:
        """Return what is wrong with arguments that a person gives to a call; a tool that is not here judges itself."""
        tool = next((each for each in self._toolset.tools if each.name == request.tool), None)
        if tool is None:
            return ArgumentsChecked(problem=None)
        return ArgumentsChecked(problem=await asyncio.to_thread(argument_problem, tool, request.arguments))

    @activity.defn(name=RESOLVE_TOOLS_ACTIVITY)
    async def resolve(self, request: ToolsRequest) -> ToolCatalog:
        """Return the traits of what `request` names; a name that is not there fails for good."""
        definition = AgentDefinition(
            name=request.agent,
            tools=request.tools,
            tools_deny=request.tools_deny,
            hooks=request.hooks,
            capabilities=request.capabilities,
            context=ContextPolicy(compiler=request.compiler),
            approvals=request.approvals,
        )
        try:
            equipment = self._toolset.equip(definition)
        except InvalidInput as error:
            text = f"{error.message} (what this worker offers)"
            raise ApplicationError(text, type=type(error).__name__, non_retryable=True) from None
        return ToolCatalog(
            at=request.at,
            tools=tuple(tool.traits for tool in equipment.tools.values()),
            hooks=tuple(hook.traits for hook in equipment.hooks.values()),
            prompt=equipment.definition.system_prompt,
            # a synchronous read would block heartbeats and all other calls of the worker
            prices=await asyncio.to_thread(self._prices.of, request.model),  # the first time it reads the whole table
        )
