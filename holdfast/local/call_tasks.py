"""Runs the calls of one execution as asyncio tasks, each of which puts its event into the execution's inbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Final

from holdfast.core.agent.state import AgentState
from holdfast.core.base.bounds import SUBAGENT_GRACE_SECONDS
from holdfast.core.conversation.error_records import error_record
from holdfast.core.loop.commands import StartTimer
from holdfast.core.loop.events import DriverFailed, Event, TimerFired
from holdfast.local.inbox import Inbox
from holdfast.runtime.user_code import was_cancelled

CANCEL_SECONDS_MAX: Final = 3.0
"""How long an ended execution waits for its cancelled tasks to end."""

_unfinished: Final[set[asyncio.Task[None]]] = set()
"""Strong references to tasks, also those left behind at an execution's end: asyncio holds tasks weakly."""


class CallTasks:
    """Starts and cancels the tasks of one execution."""

    def __init__(self, inbox: Inbox, clock: Callable[[], datetime]) -> None:
        self._inbox = inbox
        self._clock = clock
        self._calls: set[asyncio.Task[None]] = set()
        self._decisions: set[asyncio.Task[None]] = set()
        self._timer: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """True when no call is under way; a wait for approval does not count."""
        return all(task.done() for task in self._calls)

    def begin(
        self, work: Coroutine[object, object, Event], cancelled: Callable[[datetime], Event] | None = None
    ) -> None:
        """Start a call; `cancelled` makes its event when it is cancelled without an event of its own."""
        task = self._begun(work, self._calls)
        if cancelled is not None:
            inbox = self._inbox
            task.add_done_callback(lambda _: inbox.put(cancelled(self._clock())) if task.cancelled() else None)

    def begin_decision(self, work: Coroutine[object, object, Event]) -> None:
        """Start to wait for a person's decision; the wait can outlast the call."""
        self._begun(work, self._decisions)

    def set_timer(self, command: StartTimer) -> None:
        """Set the timer, which replaces the previous one."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.create_task(self._wait(command))

    def cancel(self) -> None:
        """Cancel the calls and the waits for decisions, and return at once."""
        for task in (*self._calls, *self._decisions):
            task.cancel()

    async def end(self) -> None:
        """Cancel everything and wait for its end; tasks that ignore the cancel are left behind."""
        tasks = [*self._calls, *self._decisions, *((self._timer,) if self._timer else ())]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_SECONDS_MAX)

    def _begun(self, work: Coroutine[object, object, Event], among: set[asyncio.Task[None]]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._guarded(work))
        among.add(task)
        _unfinished.add(task)
        task.add_done_callback(among.discard)
        task.add_done_callback(_unfinished.discard)
        task.add_done_callback(lambda _: work.close())  # one that is cancelled before it began would complain
        return task

    async def _guarded(self, work: Coroutine[object, object, Event]) -> None:
        """Put the event of `work` into the inbox; an unexpected error ends the run with its cause."""
        try:
            event = await work
        except BaseException as error:
            if was_cancelled(error):
                raise
            event = DriverFailed(error=error_record(error, "driver"), at=self._clock())
        self._inbox.put(event)

    async def _wait(self, command: StartTimer) -> None:
        await asyncio.sleep((command.fires_at - self._clock()).total_seconds())
        self._inbox.put(TimerFired(at=max(self._clock(), command.fires_at)))


async def ended_child(running: asyncio.Task[AgentState], stop: Callable[[str], None]) -> AgentState:
    """Return the end of a subagent; cancelling this stops it, and gives it a grace to report."""
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop("the agent that called it was stopped")
        await asyncio.wait([running], timeout=SUBAGENT_GRACE_SECONDS)
        if not running.done():
            running.cancel()
            raise
        return running.result()
