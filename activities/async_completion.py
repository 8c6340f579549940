"""Activities that the SDK times out while the server still waits for them: they continue, and we report the result.

The SDK cancels an activity that has not heartbeated in time, and drops its result. That happens when a tool holds the
interpreter's lock, although the guardian has heartbeated meanwhile. So the server is asked instead of the SDK.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, TypeVar

from temporalio import activity
from temporalio.client import AsyncActivityCancelledError, AsyncActivityHandle
from temporalio.converter import ActivitySerializationContext
from temporalio.service import RPCError, RPCStatusCode

ResultT = TypeVar("ResultT")

ASK_SECONDS: Final = 1.0
"""How often the server is asked whether it still waits; its reply also carries a cancel."""

SILENT_SECONDS_MAX: Final = 20.0
"""After this long without a heartbeat the SDK may have timed out an activity that just ended; it does so at 35 s."""

ASK_TIMEOUT: Final = timedelta(seconds=10)
REPORT_TIMEOUT: Final = timedelta(seconds=30)
GONE: Final = (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT)


async def to_its_end(
    doing: Awaitable[ResultT], details: Callable[[], tuple[object, ...]], silence: Callable[[], float]
) -> ResultT:
    """Return the result of `doing`, even if the SDK alone has timed it out; on any other cancel, cancel it.

    `details` returns the heartbeat details; `silence` returns the longest time without a heartbeat, in seconds.
    """
    work = asyncio.ensure_future(doing)
    try:
        await asyncio.wait([work])
    except asyncio.CancelledError:
        why = activity.cancellation_details()
        # set by the SDK's own timer; the server may have had heartbeats from the guardian
        timed_out = why is not None and why.timed_out
        if not timed_out:
            return work.result() if work.done() else await _ended(work)
    else:
        # it ended while this loop was blocked: the SDK's timer may have fired unnoticed
        timed_out = silence() > SILENT_SECONDS_MAX
    if not timed_out:
        return work.result()
    handle = _handle()
    try:
        while not work.done():
            if not await _is_awaited(handle, details()):
                return await _ended(work)
            await asyncio.wait([work], timeout=ASK_SECONDS)
    except asyncio.CancelledError:
        return await _ended(work)
    await _report(handle, work, details())
    return work.result()


async def heartbeat_directly(details: tuple[object, ...]) -> None:
    """Send a heartbeat past the SDK, whose own may come too late; the server's timeout then counts from now."""
    await _is_awaited(_handle(), details)


async def _ended(work: asyncio.Future[ResultT]) -> ResultT:
    work.cancel()
    return await work


def serialization_context() -> ActivitySerializationContext:
    """Return the context in which the SDK converts this activity's payloads."""
    info = activity.info()
    return ActivitySerializationContext(
        namespace=info.namespace,
        workflow_id=info.workflow_id,
        workflow_type=info.workflow_type,
        activity_type=info.activity_type,
        activity_id=info.activity_id,
        activity_task_queue=info.task_queue,
        is_local=False,
    )


def _handle() -> AsyncActivityHandle:
    handle = activity.client().get_async_activity_handle(task_token=activity.info().task_token)
    return handle.with_context(serialization_context())


async def _is_awaited(handle: AsyncActivityHandle, details: tuple[object, ...]) -> bool:
    try:
        # the server answers a heartbeat by task token with NOT_FOUND if it no longer waits
        await handle.heartbeat(*details, rpc_timeout=ASK_TIMEOUT)
    except AsyncActivityCancelledError:
        return False
    except RPCError as error:
        return error.status not in GONE
    return True


async def _report(handle: AsyncActivityHandle, work: asyncio.Future[Any], details: tuple[object, ...]) -> None:
    """Report the activity's outcome to the server: the SDK reports nothing for an activity that it timed out."""
    with suppress(RPCError):  # the server has timed it out meanwhile
        if (error := work.exception()) is None:
            # async completion takes the result by RPC, past the SDK that has dropped the task
            await handle.complete(work.result(), rpc_timeout=REPORT_TIMEOUT)
        elif isinstance(error, Exception):
            await handle.fail(error, last_heartbeat_details=details, rpc_timeout=REPORT_TIMEOUT)
