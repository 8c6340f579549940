"""Watching a run live: its states, or its events, its answers as they stream, and its tools' progress.

Nothing here writes into a history. A run's history is followed by long poll; when a worker has done something the
workflow is asked by query for its state, or for the events since. Whoever wants the events, of subagents too, has the
heartbeats looked at while a model or tool call is under way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client as TemporalClient

from holdfast.client.watch_events import AnswerSeen, AttemptFailed, ToolProgressed, Watched, WorkerAwaited
from holdfast.client.worker_presence import listing_failure, rate_wait, unserved_calls
from holdfast.connection.event_page_cache import ClosedRuns
from holdfast.connection.event_page_reader import Reader, next_attempt_at
from holdfast.connection.history_poll import TASK_SECONDS_MAX, History
from holdfast.core.agent.execution_state import call_name, named_id
from holdfast.core.agent.state import AgentState
from holdfast.core.agent.subagents import SPAWN_TOOL
from holdfast.core.base.bounds import ERROR_CHARS_MAX
from holdfast.core.base.errors import ExecutionNotFound, ServerUnavailable
from holdfast.core.base.safe_text import clamped
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.tools.call_context import ToolProgress
from holdfast.core.wire.contracts import EventsPage
from holdfast.core.wire.execution_events import (
    AgentExecutionCompleted,
    AgentExecutionFailed,
    AgentStepCompleted,
    AnyObserved,
    InferenceRequestStarted,
    InferenceResponseReceived,
    SubagentCompleted,
    SubagentSpawned,
    ToolCallBlocked,
    ToolCallCompleted,
    ToolCallStarted,
)
from holdfast.core.wire.paging import StateReader

WAITING_MAX: Final = 256
"""How much a watch holds that its consumer has not taken: beyond it the watch waits, and the run does not."""

FOLLOW_SECONDS: Final = 0.25
"""How long `follow` rests after it has read what is new."""

UNREAD_SECONDS: Final = 1.0
"""How long to wait before asking again for the state of a run that could not be read; news end the wait."""

LOOK_SECONDS: Final = 0.2
"""How often a model call under way is looked at; its heartbeats reach the server no more often than that."""

TOOL_LOOK_SECONDS: Final = 1.0
"""How often tool calls under way are looked at for the progress they report."""

READ_SECONDS: Final = 0.05
"""The least time between two readings of events, so that a fast run is read several steps at a time."""

BUSY_SHARE: Final = 2
"""After an answer that took its time, a watcher waits so many times as long: what is busy is asked less often."""

BUSY_SECONDS_MAX: Final = 1.0
"""But no longer than this."""

BEGUN_SECONDS: Final = 0.1
"""How often to look whether a subagent's run is there that its parent is starting."""

CHILDREN_SECONDS_MAX: Final = 5.0
"""How long a run's end is held back for those of the subagents that end with it."""


class Server(Protocol):
    """What a watch needs of `Holdfast`."""

    temporal: TemporalClient
    closed_runs: ClosedRuns[EventsPage]

    def result(self, execution_id: str) -> Awaitable[object]:
        """Wait for the end of a run; raise the error of one that has not ended well."""
        ...


class ChangedState(Protocol):
    """Reads the state of a Temporal run, and returns it where it has changed since `states` were read last."""

    def __call__(self, states: StateReader, run_id: str, *, over: bool) -> Awaitable[AgentState | None]:
        """Return it; of a run that is `over` also without a worker. Raises ServerUnavailable."""
        ...


async def follow(server: Server, execution_id: str, changed: ChangedState) -> AsyncGenerator[AgentState, None]:
    """Yield what `Holdfast.follow` promises."""
    runs, states = Reader(server.temporal, execution_id, server.closed_runs, EventsPage), StateReader()
    run_id: str | None = (await runs.info()).execution.run_id
    while run_id is not None:
        history = History(server.temporal, execution_id, run_id, closed=await runs.is_closed(run_id))
        news, over, unread = asyncio.create_task(history.news()), False, False
        try:
            while not over:
                await asyncio.wait([news], timeout=UNREAD_SECONDS if unread else None)
                is_news, over = news.done(), history.over
                if is_news:
                    news.result()
                if over and (run_id := history.next_run_id or await runs.reset_to(history.run_id)) is not None:
                    break  # its news tell the rest; whoever asks now disturbs its first task
                try:
                    state, unread = await changed(states, history.run_id, over=over), False
                except ServerUnavailable:
                    if over and not await runs.ended_badly():
                        raise
                    state, unread = None, True
                if state is not None:
                    yield state
                if is_news and not over:
                    await asyncio.sleep(FOLLOW_SECONDS)
                    news = asyncio.create_task(history.news())
        finally:
            await _ended(news)
        if history.next_run_id is None:
            states = StateReader()  # a reset takes back what has been read


@dataclass(frozen=True, slots=True)
class _Over:
    """The last of what a watch tells; `error` is what it ends with, none when the run ended well."""

    error: Exception | None = None


async def watch(server: Server, execution_id: str, *, start: int, subagents: bool) -> AsyncGenerator[Watched, None]:
    """Yield what `Holdfast.watch` promises."""
    queue: asyncio.Queue[Watched | _Over] = asyncio.Queue(WAITING_MAX)
    run = _Run(server, queue.put, execution_id, start, subagents=subagents)
    following = asyncio.create_task(_follow_to_its_end(server, run, queue))
    try:
        while not isinstance(each := await queue.get(), _Over):
            yield each
        if each.error is not None:
            raise each.error
    finally:
        await _ended(following)


async def _follow_to_its_end(server: Server, run: _Run, queue: asyncio.Queue[Watched | _Over]) -> None:
    """Put the run's events into `queue`, and last how the watch is to end."""
    try:
        await run.follow()
        if not run.ended_well:
            await server.result(run.execution_id)
        over = _Over()
    except Exception as error:  # noqa: BLE001  # whatever it is, who watches is to know
        over = _Over(error)
    await queue.put(over)


async def _ended(*tasks: asyncio.Task[None]) -> None:
    """Cancel the tasks and return when they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Run:
    """One execution under watch, across its runs, and below it those of its subagents."""

    def __init__(
        self,
        server: Server,
        put: Callable[[Any], Awaitable[None]],
        execution_id: str,
        place: int,
        *,
        subagents: bool,
    ) -> None:
        self.execution_id: Final = execution_id
        self.ended_well = self._is_reset = False
        self.awaited = asyncio.Event()
        """Set for a subagent when its parent has its answer: if it has not begun by then, it never will."""
        self._server, self._put, self._subagents = server, put, subagents
        self._reader = Reader(server.temporal, execution_id, server.closed_runs, EventsPage)
        self._place = place
        """How many of its events have been told, counted from its beginning."""
        self._answer: AnswerSeen | None = None
        """The model call under way."""
        self._tools: dict[str, ToolProgress | None] = {}
        """The tool calls under way, with the latest progress that was told."""
        self._requested: dict[str, ToolCall] = {}
        """The calls of the latest step, by the ids of their activities."""
        self._awaited: dict[str, WorkerAwaited] = {}
        """The tool calls that wait for a worker, as was told, by the ids of their activities."""
        self._listing: AttemptFailed | None = None
        """The latest failure to list MCP servers that was told; only before the run's first event."""
        self._read_after = self._look_after = 0.0
        self._look_at_listing_after = time.monotonic() + TOOL_LOOK_SECONDS
        self._children: dict[str, tuple[_Run, asyncio.Task[None]]] = {}
        """The subagents under way, by their calls."""

    async def follow(self) -> None:
        """Tell everything up to the end."""
        try:
            run_id: str | None = await self._reader.first_run(self._place)
            while run_id is not None:
                closed = await self._reader.is_closed(run_id)
                if closed and (reset := await self._reset_to(run_id)):
                    run_id = reset
                    continue
                history = History(self._server.temporal, self.execution_id, run_id, closed=closed)
                await self._follow(history)
                run_id, self.ended_well = history.next_run_id, history.ended_well
                if run_id is None and not closed:
                    run_id = await self._reset_to(history.run_id)
            await self._children_end()
        except ServerUnavailable:
            if not await self._reader.ended_badly():
                raise
        finally:
            await _ended(*(following for _, following in self._children.values()))

    async def _reset_to(self, run_id: str) -> str | None:
        """Return the run with which the execution goes on instead of an ended one, where an operator has reset it.

        What comes behind the place up to which that has kept the events is told anew: it happens once more.
        """
        reset = await self._reader.reset_to(run_id)
        if reset is not None:
            self._place, self._is_reset = min(self._place, await self._reader.kept(reset)), True
            self._answer, self._tools, self._requested, self._awaited = None, {}, {}, {}
        return reset

    async def follow_child(self) -> None:
        """Follow a run that its parent is starting: it need not have begun, and it may never begin."""
        while True:
            waited = self.awaited.is_set()
            with suppress(ExecutionNotFound):
                await self.follow()
                return
            if waited:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(BEGUN_SECONDS):
                    await self.awaited.wait()

    async def _follow(self, history: History) -> None:
        """Tell all events of one run."""
        news = asyncio.create_task(history.news())
        try:
            while True:
                await asyncio.wait([news], timeout=self._until_look())
                if not news.done():
                    await self._look(history.run_id)
                    continue
                news.result()
                if not history.over:
                    news = asyncio.create_task(history.news())
                    await asyncio.sleep(self._read_after - time.monotonic())
                    if history.in_task:
                        await asyncio.wait([news], timeout=TASK_SECONDS_MAX)
                over = history.over  # it can have ended meanwhile
                await self._read(history, closed=over)
                if over:
                    return
        finally:
            await _ended(news)

    # --- events

    async def _read(self, history: History, *, closed: bool) -> None:
        """Tell the events since the last reading, none that the history does not have yet."""
        while True:
            began = time.monotonic()
            page = await self._reader.page(history.run_id, self._place, closed=closed, recorded=history.recorded)
            self._read_after = _next_time(began, READ_SECONDS)
            for event in page.events:
                await self._emit(event)
            if not page.events:
                return
            self._place = page.start + len(page.events)
            if self._place >= page.total:
                return

    async def _emit(self, event: AnyObserved) -> None:
        """Tell an event, and before it what must come before it."""
        match event:
            case InferenceRequestStarted():
                self._answer = AnswerSeen(self.execution_id, event.step_number)
            case InferenceResponseReceived():
                answer = self._answer or AnswerSeen(self.execution_id, event.step_number)
                await self._emit_all(answer.answered(event.response.text))
                self._answer, self._awaited = None, {}
                calls = enumerate(event.response.tool_calls)
                self._requested = {call_name(event.step_number, place): call for place, call in calls}
            case ToolCallStarted(call=call) if call.name != SPAWN_TOOL:
                self._tools[call.id] = None
            case ToolCallCompleted(tool_execution=ended) | ToolCallBlocked(tool_execution=ended):
                self._tools.pop(ended.call.id, None)
            case AgentStepCompleted():
                self._answer = None
            case SubagentCompleted():
                await self._child_ends(event.call_id)
            case AgentExecutionCompleted() | AgentExecutionFailed():
                self._answer, self._tools = None, {}
                await self._children_end()
            case _:
                pass
        await self._put(event)
        if isinstance(event, SubagentSpawned) and self._subagents:
            await self._child_begins(event)

    async def _emit_all(self, events: Iterator[Watched]) -> None:
        for each in events:
            await self._put(each)

    # --- calls while they run

    def _until_look(self) -> float | None:
        """Return the seconds until the calls under way are to be looked at; none when there are none."""
        if not self._place:
            return max(0.0, self._look_at_listing_after - time.monotonic())
        idle = self._answer is None and not self._tools
        return None if idle else max(0.0, self._look_after - time.monotonic())

    async def _look(self, run_id: str) -> None:
        """Tell what is new of the model call, or the tool calls, under way."""
        began = time.monotonic()
        if not self._place:
            await self._look_at_listing(run_id)
            self._look_at_listing_after = _next_time(began, TOOL_LOOK_SECONDS)
        elif self._answer is None:
            await self._look_at_tools(run_id)
            self._look_after = _next_time(began, TOOL_LOOK_SECONDS)
        else:
            await self._look_at_answer(run_id)

    async def _look_at_tools(self, run_id: str) -> None:
        calls = await self._reader.calls(run_id)
        await self._look_for_workers(calls)
        for call in calls:
            report = await self._reader.tool_progress(call)
            if report is not None and self._tools.get(report.call_id, report) != report:
                self._tools[report.call_id] = report
                await self._put(ToolProgressed.of(self.execution_id, report))

    async def _look_for_workers(self, calls: Sequence[PendingActivityInfo]) -> None:
        """Tell which calls wait for a worker where none is, and which do not any more."""
        begun = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
        for activity_id in self._awaited.keys() & {each.activity_id for each in calls if each.state == begun}:
            await self._put(replace(self._awaited.pop(activity_id), over=True))
        for each in await unserved_calls(self._reader, calls):
            activity_id = call_name(each.step_number, each.index)
            call = self._requested.get(activity_id)
            if call is not None and activity_id not in self._awaited:
                awaited = WorkerAwaited(self.execution_id, each.step_number, call.id, call.name, each.task_queue)
                self._awaited[activity_id] = awaited
                await self._put(awaited)

    async def _look_at_listing(self, run_id: str) -> None:
        """Tell why a run has not begun: servers whose tools cannot be listed."""
        failure = await listing_failure(self._reader, self.execution_id, run_id)
        if failure is not None and (self._listing is None or failure.attempt != self._listing.attempt):
            self._listing = failure
            await self._put(failure)

    async def _look_at_answer(self, run_id: str) -> None:
        answer, began = self._answer, time.monotonic()
        call = None if answer is None else await self._reader.pending(run_id, call_name(answer.step_number))
        if answer is not None and call is not None:
            failure = clamped(await self._reader.failure(call), ERROR_CHARS_MAX)
            progress = await self._reader.progress(call)
            await self._emit_all(answer.looked(call.attempt, failure, progress, next_attempt_at(call)))
            await self._emit_all(answer.waits(await rate_wait(self._reader, call)))
        self._look_after = _next_time(began, LOOK_SECONDS)

    # --- subagents

    async def _child_begins(self, event: SubagentSpawned) -> None:
        if (before := self._children.pop(event.call_id, None)) is not None:  # after a reset it begins once more
            await _ended(before[1])
        child_id = named_id(self.execution_id, call_name(event.step_number, event.index))
        run = _Run(self._server, self._put, child_id, 0, subagents=True)
        self._children[event.call_id] = run, asyncio.create_task(run.follow_child())

    async def _child_ends(self, call_id: str) -> None:
        """Return when everything of this subagent has been told."""
        if call_id not in self._children:
            return
        run, following = self._children[call_id]
        run.awaited.set()
        # one that was begun before a reset goes on under its id, so that the run could not begin it again
        await asyncio.wait([following], timeout=CHILDREN_SECONDS_MAX if self._is_reset else None)
        del self._children[call_id]
        if following.done():
            following.result()
        else:
            await _ended(following)

    async def _children_end(self) -> None:
        """Return when everything has been told of the subagents that end with this run."""
        following = [task for _, task in self._children.values()]
        for run, _ in self._children.values():
            run.awaited.set()
        try:
            if following:
                await asyncio.wait(following, timeout=CHILDREN_SECONDS_MAX)
        finally:
            self._children.clear()
            await _ended(*following)


def _next_time(began: float, pause: float) -> float:
    """Return when to ask again after an answer that was asked for at `began`."""
    now = time.monotonic()
    return now + max(pause, min((now - began) * BUSY_SHARE, BUSY_SECONDS_MAX))
