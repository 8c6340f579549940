"""What a cancel of the run must not reach: work that is done to its end in any case."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import FailureError, is_cancelled_exception

T = TypeVar("T")


async def in_any_case(work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` comes to, however often the run is cancelled meanwhile."""
    # asyncio.shield would not do: it leaves at the first cancel, and the workflow would end before its work
    doing = asyncio.create_task(work)
    while not doing.done():
        try:
            await workflow.wait_condition(doing.done)
        except asyncio.CancelledError:
            # the SDK cancels all tasks of a run that it evicts from its cache; a cancel of the run has a reason
            if workflow.cancellation_reason() is None:  # the worker puts this run aside
                doing.cancel()
                raise
    return doing.result()


async def outcome(asked: asyncio.Task[T]) -> T:
    """Return what a call came to; cancelling this cancels it, unless its end has come in the very same workflow task.

    There the SDK (and asyncio) would throw the end away for the cancel, and nobody would know what the call used.
    """
    try:
        # a cancel and the result in one activation are not handled as one batch (SDK logic flag 2 is off)
        await workflow.wait([asked])
    except asyncio.CancelledError:
        if not asked.done():
            asked.cancel()
    return await asked


async def locally(doing: Awaitable[T]) -> T:
    """Return what a local activity came to.

    One is also cancelled where nobody asked for it: a worker that keeps no run in memory puts this one aside, and does
    the activity again when it takes the run up. There is nothing to go on with until then.
    """
    try:
        return await doing
    except FailureError as error:
        task = asyncio.current_task()
        # a cancelled local activity looks alike, whoever cancelled it
        if is_cancelled_exception(error) and not (task and task.cancelling()):
            await workflow.wait_condition(lambda: False)
        raise


async def begun(starting: asyncio.Task[T]) -> tuple[T, bool]:
    """Return the child that is being started, and whether it is to be cancelled: what has begun must tell its end."""
    try:
        await workflow.wait([starting])
    except asyncio.CancelledError:
        await workflow.wait([starting])
        # a child that has started is known to the server: cancelling its start would orphan it
        return starting.result(), True
    return starting.result(), False
