"""Running one tool call, the same way in-process and inside an activity. Decides nothing about retries."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from holdfast.core.agent.tools import AnyTool, ToolContext, ToolReply, bounded_result, reply_with, whole_text
from holdfast.core.agent.toolset import Toolset
from holdfast.core.base.errors import HoldfastError
from holdfast.core.base.truncation import FETCH_TOOL
from holdfast.core.conversation.error_records import error_record
from holdfast.runtime.user_code import Exited, call_foreign


class ToolExited(HoldfastError):
    """A tool tried to end its process; only the call ends."""


class Results(Protocol):
    """Where what a model does not see of a long result is kept."""

    async def bounded(self, text: str, context: ToolContext, seconds_max: float) -> str:
        """Return what the model sees of a result, and keep it whole when that is not all of it. Never raises.

        It must end within `seconds_max`: afterwards the call counts as one that took too long, and can be repeated.
        """
        ...

    def tool(self) -> AnyTool:
        """Return the tool that reads on."""
        ...


def offer_reading(offer: Toolset, results: Results | None) -> Toolset:
    """Return `offer` with the tool that reads on in long results, where any tool could bring one."""
    if results is None or not offer.tools or any(tool.name == FETCH_TOOL for tool in offer.tools):
        return offer
    return replace(offer, tools=(*offer.tools, results.tool()))


async def run_tool(
    tool: AnyTool,
    arguments: Mapping[str, Any],
    context: ToolContext,
    *,
    results: Results | None = None,
    apart: bool = False,
) -> ToolReply:
    """Check `arguments`, run the tool and return its bounded reply; `apart` as in `user_code.call_foreign`.

    Raises InvalidArguments before anything ran, or whatever the tool raised; what is no ordinary exception (SystemExit,
    a cancellation nobody asked for) becomes ToolExited. Cancelling cancels an async tool, and raises CallCancelled in
    the thread of a sync one.
    """
    bound = tool.bind(arguments, context)
    clock = asyncio.get_running_loop().time
    begun = clock()
    try:
        value = await call_foreign("tool", tool.name, partial(tool.function, **bound), apart=apart)
    except Exited as exited:
        record = error_record(exited.error, tool.name)
        told = f"the tool raised {record.type}({record.message}); tools must return or raise an ordinary error"
        raise ToolExited(told) from None
    text = whole_text(value)
    if results is not None and tool.name != FETCH_TOOL:
        text = await results.bounded(text, context, tool.traits.timeout_seconds - (clock() - begun))
    return reply_with(bounded_result(text), value)
