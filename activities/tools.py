"""Tools as activities: one activity type per tool, its input the arguments alone, its result bounded text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from holdfast.core.contracts import (
    REPLY_KIND,
    RESOLVE_TOOLS_ACTIVITY,
    TAKE_UP_ACTIVITY,
    TakenUp,
    ToolCatalog,
    ToolsRequest,
)
from holdfast.core.definition import AgentDefinition
from holdfast.core.errors import InvalidInput
from holdfast.core.offer import Offer
from holdfast.core.policies import ContextPolicy
from holdfast.core.state import named_id
from holdfast.core.texts import error_record
from holdfast.core.tools import AnyTool, ToolContext
from holdfast.local.calling import run_tool


def tool_activities(tools: Iterable[AnyTool]) -> list[Callable[..., Any]]:
    """Return an activity for each tool, of the tool's name."""
    return [_activity_of(tool) for tool in tools]


def _activity_of(tool: AnyTool) -> Callable[..., Any]:
    @activity.defn(name=tool.name)
    async def run(arguments: dict[str, Any]) -> str | dict[str, str]:
        info = activity.info()
        execution_id = info.workflow_id or ""
        context = ToolContext(
            execution_id=execution_id,
            idempotency_key=named_id(execution_id, info.activity_id),
            attempt=info.attempt,
        )
        try:
            # apart from the loop that heartbeats and talks to the model
            reply = await run_tool(tool, arguments, context, apart=True)
        except Exception as error:  # noqa: BLE001  # whatever a tool raises is told to the model
            record = error_record(error, tool.name)
            # Raised anew and without cause: a huge or unencodable failure would lose the completion. Benign, because
            # a tool's error is the model's business and no fault of this worker.
            raise ApplicationError(
                record.message, type=record.type, non_retryable=True, category=ApplicationErrorCategory.BENIGN
            ) from None
        if reply.stop is None:
            return reply.text
        return {"kind": REPLY_KIND, "text": reply.text, "stop": reply.stop}

    return run


@activity.defn(name=TAKE_UP_ACTIVITY)
async def take_up(asked: TakenUp) -> TakenUp:
    """Return what was asked: as a local activity's result, the moment is recorded."""
    return asked


class Catalog:
    """Answers which of this worker's tools and hooks an agent gets."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer

    @activity.defn(name=RESOLVE_TOOLS_ACTIVITY)
    async def resolve(self, request: ToolsRequest) -> ToolCatalog:
        """Return the traits of what `request` names; a name that is not there fails for good."""
        asked = AgentDefinition(
            name=request.agent,
            tools=request.tools,
            tools_deny=request.tools_deny,
            hooks=request.hooks,
            capabilities=request.capabilities,
            context=ContextPolicy(compiler=request.compiler),
            approvals=request.approvals,
        )
        try:
            equipment = self._offer.equip(asked)
        except InvalidInput as error:
            text = f"{error.message} (what this worker offers)"
            raise ApplicationError(text, type=type(error).__name__, non_retryable=True) from None
        return ToolCatalog(
            at=request.at,
            tools=tuple(tool.traits for tool in equipment.tools.values()),
            hooks=tuple(hook.traits for hook in equipment.hooks.values()),
            prompt=equipment.definition.system_prompt,
        )
