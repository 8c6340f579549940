"""Calls that MCP servers made tasks of: what one attempt leaves of the task for the next, and when it ends the task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import activity

from activities.async_completion import heartbeat_directly
from activities.attempt_admission import AttemptFailure, attempts_until_now
from activities.heartbeats import pulse
from activities.stale_attempts import is_final
from holdfast.core.base.frozen import replace
from holdfast.core.conversation.attempt_tally import McpTask
from holdfast.core.tools.tool_errors import ended_without_answer
from holdfast.core.tools.tool_traits import ToolTraits

ReplyT = TypeVar("ReplyT")


def task_under_way(asking: str | None) -> McpTask | None:
    """Return the task that the attempt before left, else the one that is `asking` and gets its answers, if any."""
    left = attempts_until_now().task
    if left is None and asking is not None:
        return McpTask(id=asking, created_at=activity.info().started_time)  # the person's time does not count
    return left


def age_of(task: McpTask) -> float:
    """Return how old the task was when this attempt started, in seconds; both are the Temporal server's moments."""
    return max((activity.info().started_time - task.created_at).total_seconds(), 0.0)


def refuse_second_call(traits: ToolTraits) -> None:
    """Raise ApplicationError for an attempt without a task whose predecessor may have made its one call.

    The Temporal server allows the attempt, because it cannot know whether there is a task.
    """
    if traits.resumable and traits.at_most_once and attempts_until_now().lost(activity.info().attempt):
        raise AttemptFailure(ended_without_answer(traits, "its worker was lost"), again=False)


async def resumed(task: McpTask, running: Callable[[], Coroutine[Any, Any, ReplyT]]) -> ReplyT:
    """Run `running`, which polls the task, without the admission of `attempted`: a poll cannot harm the worker."""
    here = pulse()
    here.leave(replace(attempts_until_now(), task=task))
    await here.tell()
    return await running()


class AttemptKeeper:
    """Keeps a call's task in the attempt's heartbeat details, where the next attempt finds it."""

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._began_at = self._clock()

    async def keep(self, task_id: str) -> None:
        """Keep the task at once, with the guardian and with the server."""
        here = pulse()
        created_at = activity.info().started_time + timedelta(seconds=self._clock() - self._began_at)
        here.leave(replace(attempts_until_now(), task=McpTask(id=task_id, created_at=created_at)))
        here.beat()  # else an older heartbeat that the SDK holds back would replace it
        await here.tell()
        await heartbeat_directly(here.details())

    async def is_final(self) -> bool:
        """Return whether the call ends with this attempt: it was stopped, or took too long."""
        return await is_final()
