"""Runs one tool call, in-process and inside an activity alike. Does not retry."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import HoldfastError, InvalidArguments
from holdfast.core.base.frozen import replace as with_changes
from holdfast.core.base.truncation import FETCH_TOOL
from holdfast.core.conversation.error_records import error_record
from holdfast.core.tools.tool_context import ToolContext
from holdfast.core.tools.tool_results import ToolReply, bounded_result, reply_with, whole_text
from holdfast.core.tools.tools import AnyTool
from holdfast.core.wire.record_store import AttachmentStore
from holdfast.runtime.argument_check import argument_problem
from holdfast.runtime.call_reports import CallReports, ProgressListener
from holdfast.runtime.open_resources import NO_RESOURCES, OpenResources
from holdfast.runtime.user_code import Exited, call_foreign


class ToolExited(HoldfastError):
    """A tool tried to end its process; only the call ends."""


class InvalidResult(HoldfastError):
    """What a tool returned does not fit its return annotation; the model is told that the call has had its effect."""


class Results(Protocol):
    """A store for long results, of which the model sees only a part."""

    async def bounded(self, text: str, context: ToolContext, seconds_max: float) -> str:
        """Return the part of a result that the model sees, and store it whole if that is not all. Never raises.

        It must end within `seconds_max`: afterwards the call counts as one that took too long, and can be repeated.
        """
        ...

    def tool(self) -> AnyTool:
        """Return the tool that reads the rest."""
        ...


def with_fetch_tool(toolset: Toolset, results: Results | None) -> Toolset:
    """Return `toolset` with the tool that reads the rest of long results, if it has any tools."""
    if results is None or not toolset.tools or any(tool.name == FETCH_TOOL for tool in toolset.tools):
        return toolset
    return replace(toolset, tools=(*toolset.tools, results.tool()))


async def run_tool(
    tool: AnyTool,
    arguments: Mapping[str, Any],
    context: ToolContext,
    *,
    results: Results | None = None,
    apart: bool = False,
    on_progress: ProgressListener | None = None,
    resources: OpenResources = NO_RESOURCES,
    attachments: AttachmentStore | None = None,
) -> ToolReply:
    """Check `arguments`, run the tool and return its bounded reply; `apart` as in `user_code.call_foreign`.

    `on_progress` is called on this event loop with what a tool reports of its progress; `resources` are those that are
    open, and `attachments` keeps the files that it attaches.

    Raises InvalidArguments before anything ran, InvalidResult for what does not fit the tool's declared output, or
    whatever the tool raised; anything but an ordinary exception
    (SystemExit, a cancellation of its own) becomes ToolExited. Cancelling cancels an async tool; it raises
    CallCancelled in the thread of a sync one.
    """
    if tool.checked_by_schema and (problem := await asyncio.to_thread(argument_problem, tool, arguments)):
        raise InvalidArguments(problem)
    reports = CallReports(tool.name, context, on_progress)
    bound = {**tool.bind(arguments, replace(context, reporter=reports)), **resources.values_for(tool)}
    clock = asyncio.get_running_loop().time
    started_at = clock()
    try:
        loop = resources.loop_for(tool)
        value = await call_foreign("tool", tool.name, partial(tool.function, **bound), apart=apart, loop=loop)
    except Exited as exited:
        record = error_record(exited.error, tool.name)
        message = f"the tool raised {record.type}({record.message}); tools must return or raise an ordinary error"
        raise ToolExited(message) from None
    finally:
        metadata = reports.ended()
    text = whole = _whole_text(tool, value)
    if results is not None and tool.name != FETCH_TOOL:
        text = await results.bounded(whole, context, tool.traits.timeout_seconds - (clock() - started_at))
    reply = reply_with(bounded_result(text), value, whole)
    reply = await reports.files.kept(reply, attachments, tool.traits.timeout_seconds - (clock() - started_at))
    return with_changes(reply, metadata=metadata) if metadata else reply


def _whole_text(tool: AnyTool, value: object) -> str:
    if tool.output is None:
        return whole_text(value)
    try:
        return tool.output.text_of(value)
    except ValueError as problem:
        what = "the tool has run and had its effect, but what it returned does not fit its return annotation"
        raise InvalidResult(f"{what}: {problem}") from None
