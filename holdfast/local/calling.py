"""Running one tool call, the same way in-process and inside an activity. Decides nothing about retries."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final

from holdfast.core.errors import HoldfastError
from holdfast.core.texts import error_record
from holdfast.core.tools import AnyTool, ToolContext, ToolReply, reply_of

TOOL_THREADS_MAX: Final = 1_000
"""Sync calls in one process, those included that were given up on and have not returned yet."""

_places = threading.BoundedSemaphore(TOOL_THREADS_MAX)


class ToolExited(HoldfastError):
    """A tool tried to end its process; only the call ends."""


async def run_tool(
    tool: AnyTool, arguments: Mapping[str, Any], context: ToolContext, *, apart: bool = False
) -> ToolReply:
    """Check `arguments`, run the tool and return its bounded reply.

    `apart` runs an async tool on the loop of another thread, so that one that blocks does not stop everything else.

    Raises InvalidArguments before anything ran, or whatever the tool raised; what is no ordinary exception (SystemExit,
    a cancellation nobody asked for) becomes ToolExited. Cancelling cancels an async tool; a sync one is left behind in
    its thread.
    """
    bound = tool.bind(arguments, context)
    if inspect.iscoroutinefunction(tool.function):
        work = _guarded(tool, bound)
        value = await (asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, tools_loop())) if apart else work)
    else:
        value = await _in_thread(tool, bound)
        if inspect.isawaitable(value):  # a plain function around an async one
            value = await value
    return reply_of(value)


@cache
def tools_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that async tools share, in a daemon thread of its own; made when first asked for."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="tools", daemon=True).start()
    return loop


async def _in_thread(tool: AnyTool, bound: Mapping[str, Any]) -> object:
    """Run a sync tool in a daemon thread of its own: one that never returns costs a thread, not other tools' turn."""
    if not _places.acquire(blocking=False):
        raise ToolExited(f"{TOOL_THREADS_MAX:,} sync tool calls have not returned yet; restart the worker")
    loop = asyncio.get_running_loop()
    done: asyncio.Future[object] = loop.create_future()
    inherited = contextvars.copy_context()

    def settle(value: object, error: BaseException | None) -> None:
        if done.done():
            return  # given up on meanwhile
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

    def work() -> None:
        value, failed = None, None
        try:
            value = inherited.run(_guarded_sync, tool, bound)
        except Exception as error:  # noqa: BLE001  # handed to whoever awaits the call
            failed = error
        finally:
            _places.release()
        with suppress(RuntimeError):  # the loop is closed: nobody awaits it any more
            loop.call_soon_threadsafe(settle, value, failed)

    threading.Thread(target=work, name=f"tool {tool.name}", daemon=True).start()
    return await done


async def _guarded(tool: AnyTool, bound: Mapping[str, Any]) -> object:
    try:
        return await tool.function(**bound)
    except BaseException as error:
        if isinstance(error, Exception) or was_cancelled(error):
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


def was_cancelled(error: BaseException) -> bool:
    """Return whether `error` is a cancellation that somebody asked this task for; foreign code can raise one itself."""
    task = asyncio.current_task() if isinstance(error, asyncio.CancelledError) else None
    return task is not None and task.cancelling() > 0


def _exited(tool: AnyTool, error: BaseException) -> ToolExited:
    record = error_record(error, tool.name)
    return ToolExited(f"the tool raised {record.type}({record.message}); tools must return or raise an ordinary error")
