"""Running one tool call, the same way in-process and inside an activity. Decides nothing about retries."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.texts import error_record
from holdfast.core.tools import AnyTool, ToolContext, ToolReply, reply_of
from holdfast.local.foreign import Exited, call_foreign


class ToolExited(HoldfastError):
    """A tool tried to end its process; only the call ends."""


async def run_tool(
    tool: AnyTool, arguments: Mapping[str, Any], context: ToolContext, *, apart: bool = False
) -> ToolReply:
    """Check `arguments`, run the tool and return its bounded reply; `apart` as in `foreign.call_foreign`.

    Raises InvalidArguments before anything ran, or whatever the tool raised; what is no ordinary exception (SystemExit,
    a cancellation nobody asked for) becomes ToolExited. Cancelling cancels an async tool, and raises CallCancelled in
    the thread of a sync one.
    """
    bound = tool.bind(arguments, context)
    try:
        value = await call_foreign("tool", tool.name, partial(tool.function, **bound), apart=apart)
    except Exited as exited:
        record = error_record(exited.error, tool.name)
        told = f"the tool raised {record.type}({record.message}); tools must return or raise an ordinary error"
        raise ToolExited(told) from None
    return reply_of(value)
