"""Running one tool call, the same way in-process and inside an activity. Decides nothing about retries."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final

from holdfast.core.errors import HoldfastError
from holdfast.core.texts import error_record
from holdfast.core.tools import AnyTool, ToolContext, render_result

TOOL_THREADS_MAX: Final = 128
"""Sync tools at work at once in one process; a tool that hangs holds its thread until it returns."""


class ToolExited(HoldfastError):
    """A tool tried to end its process; only the call ends."""


async def run_tool(tool: AnyTool, arguments: Mapping[str, Any], context: ToolContext) -> str:
    """Check `arguments`, run the tool and return its bounded result.

    Raises InvalidArguments before anything ran, or whatever the tool raised; what is no ordinary exception (SystemExit,
    a cancellation nobody asked for) becomes ToolExited. Cancelling cancels an async tool; a sync one is left behind in
    its thread.
    """
    bound = tool.bind(arguments, context)
    if inspect.iscoroutinefunction(tool.function):
        value = await _guarded(tool, bound)
    else:
        inherited = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        value = await loop.run_in_executor(_threads(), lambda: inherited.run(_guarded_sync, tool, bound))
    return render_result(value)


async def _guarded(tool: AnyTool, bound: Mapping[str, Any]) -> object:
    try:
        return await tool.function(**bound)
    except BaseException as error:
        if is_ordinary(error):
            raise
        raise _exited(tool, error) from None


def _guarded_sync(tool: AnyTool, bound: Mapping[str, Any]) -> object:
    try:
        return tool.function(**bound)
    except BaseException as error:
        # a future cannot carry StopIteration, and would pass SystemExit on to the event loop
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            raise
        raise _exited(tool, error) from None


def is_ordinary(error: BaseException) -> bool:
    """Return whether `error` may pass through a task: an Exception, or a cancellation somebody asked this task for."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, Exception)


def _exited(tool: AnyTool, error: BaseException) -> ToolExited:
    record = error_record(error, tool.name)
    return ToolExited(f"the tool raised {record.type}({record.message}); tools must return or raise an ordinary error")


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(TOOL_THREADS_MAX, thread_name_prefix="tool")
