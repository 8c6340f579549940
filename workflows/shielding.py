"""Shields calls from cancels of the run, so that their results are not lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, TypeVar

from temporalio import workflow
from temporalio.exceptions import FailureError, is_cancelled_exception

T = TypeVar("T")

TASK_PAUSE: Final = timedelta(milliseconds=1)
"""A timer's end is a new workflow task, however short it is."""


async def in_any_case(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, however often the run is cancelled meanwhile."""
    # asyncio.shield is not enough: it returns at the first cancel, and the workflow would end before its work
    doing = asyncio.create_task(work)
    while not doing.done():
        try:
            await workflow.wait_condition(doing.done)
        except asyncio.CancelledError:
            # the SDK cancels all tasks of a run that it evicts from its cache; a cancel of the run has a reason
            if workflow.cancellation_reason() is None:  # an eviction
                doing.cancel()
                raise
    return doing.result()


async def outcome(task: asyncio.Task[T]) -> T:
    """Return a call's result; cancelling this cancels the call, unless its result came in the same workflow task.

    In that case the SDK (and asyncio) would discard the result for the cancel, and the call's usage would be lost.
    """
    try:
        # a cancel and the result in one activation are not handled as one batch (SDK logic flag 2 is off)
        await workflow.wait([task])
    except asyncio.CancelledError:
        if not task.done():
            task.cancel()
    return await task


async def locally(doing: Awaitable[T]) -> T:
    """Return a local activity's result; while an update waits for its answer, in a later workflow task.

    One is also cancelled without a request: a worker without room in its cache evicts this run, and repeats the
    activity when it takes the run up again. Until then this waits.
    """
    try:
        result = await doing
    except FailureError as error:
        task = asyncio.current_task()
        # a cancelled local activity looks alike, whoever cancelled it
        if is_cancelled_exception(error) and not (task and task.cancelling()):
            await workflow.wait_condition(lambda: False)
        await _reach_a_later_task()
        raise
    await _reach_a_later_task()
    return result


async def _reach_a_later_task() -> None:
    """Return in a later workflow task if an update is under way.

    Its answer must not be given in the task that ends a local activity. That task can be written without it, as when it
    brought a query (`workflows.replay_guard`). A replay then gives the answer in the past, where the SDK (core 1.35)
    keeps the command and drops the message that it names: the server refuses that task for ever.
    """
    length = workflow.info().get_current_history_length()
    while not workflow.all_handlers_finished() and workflow.info().get_current_history_length() == length:
        with suppress(asyncio.CancelledError):  # what was cancelled has its result; an eviction lets no timer begin
            await workflow.sleep(TASK_PAUSE, summary="an update is answered in a task of its own")


async def begun(starting: asyncio.Task[T]) -> tuple[T, bool]:
    """Return the started child, and whether it is to be cancelled: a child that has begun must report its end."""
    try:
        await workflow.wait([starting])
    except asyncio.CancelledError:
        await workflow.wait([starting])
        # a child that has started is known to the server: cancelling its start would orphan it
        return starting.result(), True
    return starting.result(), False
